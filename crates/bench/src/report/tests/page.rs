//! The page: well-formed, without anything that is fetched or run, and what it says.

use std::collections::BTreeSet;

use quick_xml::{Reader, events::Event};

use super::super::{html, specimen};

fn pages() -> Vec<String> {
    [specimen::report(), specimen::extremes(), specimen::empty()]
        .iter()
        .map(html)
        .collect()
}

/// What a page holds, as an XML parser sees it.
#[derive(Default)]
struct Page {
    elements: Vec<String>,
    attributes: Vec<(String, String)>,
    text: String,
}

fn parse(page: &str) -> Page {
    let mut reader = Reader::from_str(page);
    reader.config_mut().check_end_names = true;
    let mut seen = Page::default();
    let mut open = 0;
    loop {
        let event = reader.read_event().expect("the page is well-formed");
        if let Event::Start(tag) | Event::Empty(tag) = &event {
            seen.elements
                .push(AsRef::<str>::as_ref(&tag.name()).to_owned());
            for attribute in tag.attributes() {
                let attribute = attribute.expect("each attribute is quoted and given once");
                let name = AsRef::<str>::as_ref(&attribute.key).to_owned();
                seen.attributes
                    .push((name, attribute.value.clone().into_owned()));
            }
        }
        match event {
            Event::Start(_) => open += 1,
            Event::End(_) => open -= 1,
            Event::Text(text) => seen.text.push_str(&text),
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0, "every element is closed");
    seen
}

#[test]
fn every_page_is_well_formed() {
    for page in pages() {
        assert!(parse(&page).elements.len() > 10);
    }
}

#[test]
fn identifiers_are_unique_and_what_refers_to_them_finds_them() {
    for page in pages() {
        let attributes = parse(&page).attributes;
        let identifiers: Vec<_> = attributes
            .iter()
            .filter(|(name, _)| name == "id")
            .map(|(_, value)| value)
            .collect();
        let unique: BTreeSet<_> = identifiers.iter().collect();
        assert_eq!(unique.len(), identifiers.len());
        let references = attributes
            .iter()
            .filter(|(name, _)| name == "aria-labelledby");
        for reference in references.flat_map(|(_, value)| value.split(' ')) {
            assert!(
                identifiers.iter().any(|known| *known == reference),
                "{reference}"
            );
        }
    }
}

#[test]
fn nothing_is_fetched_and_nothing_is_run() {
    for page in pages() {
        let parsed = parse(&page);
        for forbidden in [
            "script", "link", "img", "iframe", "object", "image", "use", "b>",
        ] {
            assert!(
                !parsed.elements.iter().any(|element| element == forbidden),
                "{forbidden}"
            );
        }
        for (name, value) in &parsed.attributes {
            assert!(
                !["href", "src", "xlink:href", "style"].contains(&name.as_str()),
                "{name}"
            );
            assert!(!name.starts_with("on"), "{name}={value}");
        }
        assert!(!page.contains("url(") && !page.contains("@import"));
    }
}

#[test]
fn what_comes_from_outside_is_only_text() {
    let page = html(&specimen::extremes());
    assert!(
        !page.contains("<script") && !page.contains("<i>row") && !page.contains("</svg></"),
        "markup got through"
    );
    assert!(page.contains("&lt;script&gt;alert(1)&lt;"));
    assert!(!page.chars().any(|c| c.is_control() && c != '\n'));
    for number in ["NaN", "inf", "Infinity"] {
        let drawn = parse(&page).attributes;
        let broken = drawn.iter().find(|(name, value)| {
            name != "title" && value.split([' ', 'L']).any(|it| it == number)
        });
        assert_eq!(broken, None);
    }
}

#[test]
fn every_chart_is_named_and_described_and_inside_its_frame() {
    let page = html(&specimen::report());
    let charts = page.matches("<figure").count();
    assert!(charts > 30, "{charts}");
    assert_eq!(page.matches("role=\"img\"").count(), charts);
    assert_eq!(page.matches("<desc>").count(), charts);
    for part in page.split("<figure").skip(1) {
        let chart = part.split("</figure>").next().expect("a chart");
        let height = chart.split("viewBox=\"0 0 280 ").nth(1).expect("a frame");
        let height: f64 = height
            .split('"')
            .next()
            .expect("closed")
            .parse()
            .expect("a number");
        for y in chart.split(" y=\"").skip(1) {
            let y: f64 = y
                .split('"')
                .next()
                .expect("closed")
                .parse()
                .expect("a number");
            assert!((0.0..=height).contains(&y), "{y} is outside of {height}");
        }
    }
}

#[test]
fn the_page_says_what_was_found_and_what_was_not_measured() {
    let text = parse(&html(&specimen::report())).text;
    for part in [
        "penstock is the fastest in",
        "Where penstock is behind",
        "Not measured: juicefs",
        "there is no stream volume yet",
        "measured elsewhere",
        "timed out after 300 s, killed",
        "0.8 cores of foreign load",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert!(
        parse(&html(&specimen::empty()))
            .text
            .contains("Nothing could be measured")
    );
}

#[test]
fn a_client_has_its_colour_in_every_chart() {
    let page = html(&specimen::report());
    for part in page.split("<g class=\"k").skip(1) {
        let (index, rest) = part.split_once('"').expect("quoted");
        let index: usize = index.parse().expect("an index");
        let group = rest.split("</g>").next().unwrap_or(rest);
        if let Some(title) = group.split("<title>").nth(1) {
            let name = &specimen::report().clients[index].name;
            assert!(
                title.starts_with(&format!("{name}:")),
                "{title} is drawn as {name}"
            );
        }
    }
}

#[test]
fn what_others_published_of_a_family_is_a_line_of_its_own() {
    let mut report = specimen::report();
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    for row in rows {
        row.published.clear();
        let readers = row.workload.strip_prefix("random-read-");
        if let Some(readers) = readers.filter(|readers| readers.len() < 4) {
            row.published.push(crate::record::Published {
                client: "another".to_owned(),
                figures: [("files".to_owned(), format!("{readers} /s"))].into(),
                source: "a paper".to_owned(),
            });
        }
    }
    let page = html(&report);
    assert!(page.contains("broken line: another, measured elsewhere"));
    assert_eq!(page.matches("class=\"reference\"").count(), 1);
    assert!(page.contains("Latency 99 %"));
}

#[test]
fn a_page_stays_small() {
    let page = html(&specimen::report());
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}
