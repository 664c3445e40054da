//! The pictures: which there are, that each stands alone, and that none shows a path of this machine.

use std::collections::BTreeSet;

use quick_xml::{Reader, events::Event};

use super::super::{Picture, html, pictures, specimen};

/// Every element and attribute of a picture.
fn parse(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut found, mut open) = (Vec::new(), 0);
    loop {
        let event = reader.read_event().expect("a picture is well-formed");
        if let Event::Start(tag) | Event::Empty(tag) = &event {
            let attributes = tag.attributes().map(|attribute| {
                let attribute = attribute.expect("quoted, and given once");
                let name = AsRef::<str>::as_ref(&attribute.key).to_owned();
                (name, attribute.value.clone().into_owned())
            });
            let name = AsRef::<str>::as_ref(&tag.name()).to_owned();
            found.push((name, attributes.collect()));
        }
        match event {
            Event::Start(_) => open += 1,
            Event::End(_) => open -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0, "every element is closed");
    found
}

fn album() -> Vec<Picture> {
    let reports = [specimen::report(), specimen::extremes()];
    reports.iter().flat_map(pictures).collect()
}

fn picture(name: &str) -> String {
    let mut pictures = pictures(&specimen::report()).into_iter();
    let found = pictures.find(|picture| picture.name == name);
    found.expect("there is such a picture").text
}

#[test]
fn each_row_family_distance_and_suite_has_a_picture() {
    let all = pictures(&specimen::report());
    let names: BTreeSet<_> = all.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names.len(), all.len());
    for name in [
        "ossfs2-lan.svg",
        "ossfs2-read-1-lan.svg",
        "ossfs2-read-1-by-distance.svg",
        "strmvol-random-read-region.svg",
    ] {
        assert!(names.contains(name), "{name} is not in {names:#?}");
    }
    assert!(pictures(&specimen::empty()).is_empty());
}

#[test]
fn names_are_plain_and_unique_whatever_rows_are_called() {
    let mut report = specimen::extremes();
    let mut again = report.tables[0].rows[0].clone();
    again.workload = "<i>ROW</i>".to_owned();
    report.tables[0].rows.push(again);
    let names: Vec<String> = pictures(&report).into_iter().map(|it| it.name).collect();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    assert!(
        names.iter().all(|name| name.chars().all(plain)),
        "{names:?}"
    );
    let unique: BTreeSet<_> = names.iter().collect();
    assert!(unique.len() == names.len() && names.len() > 2, "{names:?}");
}

#[test]
fn a_picture_stands_alone_and_follows_light_and_dark() {
    for picture in album() {
        let elements = parse(&picture.text);
        let (root, attributes) = &elements[0];
        assert_eq!(root, "svg");
        let has = |wanted: &str| attributes.iter().any(|(name, _)| name == wanted);
        assert!(["xmlns", "viewBox", "width", "height"].into_iter().all(has));
        assert!(picture.text.contains("prefers-color-scheme: dark"));
        for (name, attributes) in &elements {
            let known = [
                "svg", "title", "desc", "style", "g", "rect", "line", "path", "circle", "text",
                "tspan",
            ];
            assert!(known.contains(&name.as_str()), "{name} in {}", picture.name);
            for (name, _) in attributes {
                assert!(!name.starts_with("on") && !name.ends_with("href"), "{name}");
            }
        }
        for forbidden in ["url(", "@import", "@font-face", "<!", "NaN"] {
            assert!(!picture.text.contains(forbidden), "{forbidden}");
        }
    }
}

#[test]
fn every_text_lies_on_the_paper() {
    for picture in pictures(&specimen::report()) {
        let elements = parse(&picture.text);
        let number = |attributes: &[(String, String)], wanted: &str| {
            let found = attributes.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.parse::<f64>().expect("a number"))
        };
        let height = number(&elements[0].1, "height").expect("the root has one");
        let (mut top, mut bottom) = (0.0, height);
        for (name, attributes) in &elements[1..] {
            let y = number(attributes, "y").unwrap_or(0.0);
            if name == "svg" {
                let own = number(attributes, "height").expect("placed");
                assert!(y + own <= height, "{} leaves the paper", picture.name);
                (top, bottom) = (0.0, height);
            }
            assert!((top..=bottom).contains(&y), "{y} in {}", picture.name);
        }
    }
}

#[test]
fn the_charts_are_those_of_the_page() {
    let page = html(&specimen::report());
    let picture = picture("ossfs2-read-1-lan.svg");
    let drawing = |text: &str| {
        let begins = text.find("<desc").expect("a chart");
        let text = &text[begins..];
        let inside = text.find("</desc>").expect("described");
        let ends = text.find("</svg>").expect("closed");
        text[inside..ends].to_owned()
    };
    let speed = drawing(&picture);
    assert!(speed.contains("class=\"bar\"") && page.contains(&speed));
}

#[test]
fn the_subject_stands_out() {
    let text = picture("ossfs2-read-1-lan.svg");
    assert!(text.contains("svg .k0 .name { font-weight: 700; }"));
    assert!(!text.contains("svg .k1 .name { font-weight: 700; }"));
}

#[test]
fn no_path_of_the_machine_gets_into_a_picture() {
    let mut report = specimen::report();
    report.endpoint.description = "directory /mnt/secret".to_owned();
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    for cell in rows
        .flat_map(|row| &mut row.cells)
        .filter(|cell| cell.client != "penstock")
    {
        for sample in &mut cell.samples[1..] {
            sample.failure = Some("cannot open /tmp/secret: no".to_owned());
        }
    }
    for sample in &mut report.tables[0].rows[0].cells[1].samples {
        sample.failure = Some("no /tmp/secret".to_owned());
    }
    let all: String = pictures(&report).into_iter().map(|it| it.text).collect();
    assert!(all.contains("cannot open …") && all.contains("against directory …"));
    assert!(!all.contains("secret"));
}
