//! One colour and one mark for each client, throughout the page.
//!
//! The colours were chosen so that no two of them look alike to people with any of the three common kinds of colour blindness,
//! on light and on dark paper; a test holds them to it. From the ninth client on the colour is grey and the mark tells.

use super::{
    chart::circle,
    markup::{Attributes, Markup, Px},
};
use crate::record::{Client, Report};

/// Colours for light and for dark paper.
pub(in crate::report) const COLOURS: [(&str, &str); 8] = [
    ("#1f5fbf", "#4a90ee"),
    ("#e05c00", "#fb7f2e"),
    ("#1a9a6c", "#52ba62"),
    ("#d876b0", "#f0a3d6"),
    ("#62aee6", "#bfe4fb"),
    ("#70280f", "#b04f38"),
    ("#41208f", "#7a4ee0"),
    ("#c2ad1b", "#ebe06a"),
];

/// The class that gives an element the colour of the client at `index`.
pub(in crate::report) fn class(index: usize) -> String {
    if index < COLOURS.len() {
        format!("k{index}")
    } else {
        "kx".to_owned()
    }
}

/// The rules that give classes their colours, and make the names of the client at `subject` bold.
pub(in crate::report) fn style(subject: Option<usize>) -> String {
    let variables = |pick: fn(&(&'static str, &'static str)) -> &'static str| {
        let colours = COLOURS.iter().enumerate();
        colours
            .map(|(index, pair)| format!("--k{index}:{};", pick(pair)))
            .collect::<String>()
    };
    let light = variables(|pair| pair.0);
    let dark = variables(|pair| pair.1);
    let classes: String = (0..COLOURS.len())
        .map(|index| format!(".k{index}{{--own:var(--k{index})}}\n"))
        .collect();
    let own = subject.map_or(String::new(), |index| {
        format!("svg .{} .name{{font-weight:700}}\n", class(index))
    });
    format!(
        ":root{{{light}--kx:#7d828b}}\n@media (prefers-color-scheme:dark){{:root{{{dark}--kx:#9097a1}}}}\n\
         @media print{{:root{{{light}--kx:#7d828b}}}}\n{classes}.kx{{--own:var(--kx)}}\n{own}"
    )
}

/// The clients with their colours and versions; those that are missing, with the reason.
pub(in crate::report) fn legend(page: &mut Markup, report: &Report) {
    page.within(
        "ul",
        &[("class", &"legend"), ("aria-label", &"Clients")],
        |page| {
            for (index, client) in report
                .clients
                .iter()
                .enumerate()
                .filter(|(_, client)| client.missing.is_none())
            {
                page.within("li", &[("class", &class(index))], |page| {
                    let attributes: Attributes<'_> = &[
                        ("class", &"swatch"),
                        ("viewBox", &"0 0 12 12"),
                        ("aria-hidden", &"true"),
                    ];
                    page.within("svg", attributes, |page| mark(page, index, (6.0, 6.0)));
                    page.leaf("b", &[], &client.name);
                    page.leaf("span", &[("class", &"faint")], &version_of(client));
                });
            }
        },
    );
    let missing = report.clients.iter().filter_map(|client| {
        client
            .missing
            .as_ref()
            .map(|reason| format!("{} ({})", client.name, reason.trim().trim_end_matches('.')))
    });
    let missing: Vec<String> = missing.collect();
    if !missing.is_empty() {
        let text = format!("Not measured: {}.", missing.join(", "));
        page.leaf("p", &[("class", &"missing")], &text);
    }
}

/// The version of `client`, as short as it can be said; empty when it is not known.
pub(in crate::report) fn version_of(client: &Client) -> String {
    version(client.version.as_deref(), &client.name)
}

/// The word of a version text that looks like a version, else the text, and not longer than a legend should be.
fn version(version: Option<&str>, name: &str) -> String {
    let text = version.unwrap_or_default().trim();
    let text = text.strip_prefix(name).unwrap_or(text).trim();
    let is_version = |word: &&str| {
        let digits = word.trim_start_matches(['v', 'V']);
        digits.starts_with(|c: char| c.is_ascii_digit()) && digits.contains('.')
    };
    let word = text.split([' ', ',', '(', ')']).find(is_version);
    super::chart::shorten(word.map_or(text, without_build), 24)
}

/// A version without a `v` before it and without what says from which commit it was built.
fn without_build(word: &str) -> &str {
    let word = word.trim_start_matches(['v', 'V']);
    word.split_once('+').map_or(word, |(version, _)| version)
}

/// The mark of the client at `index` around `centre`, about nine units wide, filled with its colour.
pub(in crate::report) fn mark(page: &mut Markup, index: usize, centre: (f64, f64)) {
    let (x, y) = centre;
    let path = match index % 6 {
        0 => {
            return circle(page, "mark", centre, 4.2);
        }
        1 => format!("M{} {}h8v8h-8z", Px(x - 4.0), Px(y - 4.0)),
        2 => format!("M{} {}l5 8.6h-10z", Px(x), Px(y - 5.4)),
        3 => format!("M{} {}l5.4 5.4l-5.4 5.4l-5.4 -5.4z", Px(x), Px(y - 5.4)),
        4 => format!("M{} {}l5 -8.6h-10z", Px(x), Px(y + 5.4)),
        _ => format!(
            "M{} {}h3v3.2h3.2v3h-3.2v3.2h-3v-3.2h-3.2v-3h3.2z",
            Px(x - 1.5),
            Px(y - 4.7)
        ),
    };
    page.empty("path", &[("class", &"mark"), ("d", &path)]);
}

#[cfg(test)]
mod tests;
