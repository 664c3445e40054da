//! The frame that all charts share: caption, drawing, description; and how much text fits where.
//!
//! There is no way to measure text when a page is made without a browser, so lanes for names and values are wide enough for
//! what [`shorten`] leaves, by an estimate that is on the safe side.

use super::markup::{Attributes, Markup, Px};

/// All charts are as wide.
pub(super) const WIDTH: f64 = 280.0;
/// Units of a letter of the size that charts use, on average; digits and capitals are wider than most letters.
const LETTER: f64 = 6.8;

/// A chart's frame.
pub(super) struct Frame<'a> {
    /// What is shown: "Bandwidth".
    pub(super) title: &'a str,
    /// Unit and direction: "MiB/s, longer is better".
    pub(super) note: &'a str,
    /// What the chart says, in words, for those who do not see it.
    pub(super) description: &'a str,
    /// Units from top to bottom.
    pub(super) height: f64,
}

/// A figure with a caption, and the drawing that `draw` makes in it.
pub(super) fn figure(page: &mut Markup, frame: &Frame<'_>, draw: impl FnOnce(&mut Markup)) {
    let (title, description) = (page.identifier(), page.identifier());
    page.within("figure", &[("class", &"chart")], |page| {
        page.within("figcaption", &[], |page| {
            page.leaf("b", &[], frame.title);
            page.text(" ");
            page.leaf("span", &[], frame.note);
        });
        let view = format!("0 0 {WIDTH} {}", Px(frame.height));
        let labels = format!("{title} {description}");
        let attributes: Attributes<'_> = &[
            ("viewBox", &view),
            ("role", &"img"),
            ("aria-labelledby", &labels),
        ];
        page.within("svg", attributes, |page| {
            page.leaf(
                "title",
                &[("id", &title)],
                &format!("{}, {}", frame.title, frame.note),
            );
            page.leaf("desc", &[("id", &description)], frame.description);
            draw(page);
        });
    });
}

/// `text` with at most `letters`; what was cut ends in `…`.
pub(super) fn shorten(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The name of a client with at most `letters`. Clients of one family begin alike and differ at their ends, so what is cut
/// is in the middle.
pub(super) fn shorten_name(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    let kept = letters.saturating_sub(1);
    let (head, tail) = (kept / 3, kept - kept / 3);
    let head: String = name.chars().take(head).collect();
    let tail: String = name.chars().skip(count - tail).collect();
    format!("{head}…{tail}")
}

/// Units that `letters` take, about.
pub(super) fn width(letters: usize) -> f64 {
    letters as f64 * LETTER
}

/// `text` as far as it fits into `units`.
pub(super) fn fit(text: &str, units: f64) -> String {
    shorten(text, (units / LETTER).floor().max(1.0) as usize)
}

/// The name of a client as far as it fits into `units`.
pub(super) fn fit_name(name: &str, units: f64) -> String {
    shorten_name(name, (units / LETTER).floor().max(1.0) as usize)
}

/// A straight line.
pub(super) fn line(page: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let (x1, y1, x2, y2) = (Px(from.0), Px(from.1), Px(to.0), Px(to.1));
    page.empty(
        "line",
        &[
            ("class", &class),
            ("x1", &x1),
            ("y1", &y1),
            ("x2", &x2),
            ("y2", &y2),
        ],
    );
}

/// Text that begins at a point.
pub(super) fn label(page: &mut Markup, class: &str, at: (f64, f64), text: &str) {
    page.leaf(
        "text",
        &[("class", &class), ("x", &Px(at.0)), ("y", &Px(at.1))],
        text,
    );
}

/// The names of ticks under an axis, from left to right; one that would touch its neighbour is left out.
pub(super) fn tick_names(
    page: &mut Markup,
    y: f64,
    names: impl IntoIterator<Item = (f64, String)>,
) {
    let mut free_from = f64::NEG_INFINITY;
    for (x, name) in names {
        let half = width(name.chars().count()) / 2.0;
        if x - half > free_from {
            label(page, "tick", (x, y), &name);
            free_from = x + half + 3.0;
        }
    }
}
