//! The frame that all charts share: title, drawing, description; and how much text fits where.
//!
//! There is no way to measure text when a page is made without a browser, so lanes for names and values are wide enough for
//! what [`shorten`] leaves, by an estimate that is on the safe side.

use super::markup::{Attributes, Markup, Px};

/// All charts are as wide.
pub(in crate::report) const WIDTH: f64 = 280.0;
/// Units of a letter of the size that charts use, on average; digits and capitals are wider than most letters.
const LETTER: f64 = 6.8;

/// A chart that is laid out, and is drawn where there is a place for it.
pub(in crate::report) struct Chart<'a> {
    /// What is shown: "Bandwidth".
    pub(in crate::report) title: String,
    /// Unit and direction: "MiB/s, longer is better".
    pub(in crate::report) note: String,
    /// What the chart says, in words, for those who do not see it.
    pub(in crate::report) description: String,
    /// Units from top to bottom.
    pub(in crate::report) height: f64,
    /// Draws it, within [`WIDTH`] and `height`.
    pub(in crate::report) draw: Box<dyn Fn(&mut Markup) + 'a>,
}

impl Chart<'_> {
    /// The drawing, named and described for those who do not see it, with `attributes` that say where and how large.
    pub(in crate::report) fn drawing(&self, page: &mut Markup, attributes: Attributes<'_>) {
        let (title, description) = (page.identifier(), page.identifier());
        let view = format!("0 0 {WIDTH} {}", Px(self.height));
        let labels = format!("{title} {description}");
        let own: Attributes<'_> = &[
            ("viewBox", &view),
            ("role", &"img"),
            ("aria-labelledby", &labels),
        ];
        page.within("svg", &[own, attributes].concat(), |page| {
            let name = format!("{}, {}", self.title, self.note);
            page.leaf("title", &[("id", &title)], &name);
            page.leaf("desc", &[("id", &description)], &self.description);
            (self.draw)(page);
        });
    }
}

/// `text` with at most `letters`; what was cut ends in `…`.
pub(in crate::report) fn shorten(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(letters.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The name of a client with at most `letters`. Clients of one family begin alike and differ at their ends, so what is cut
/// is in the middle.
pub(in crate::report) fn shorten_name(name: &str, letters: usize) -> String {
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
pub(in crate::report) fn width(letters: usize) -> f64 {
    letters as f64 * LETTER
}

/// `text` as far as it fits into `units`.
pub(in crate::report) fn fit(text: &str, units: f64) -> String {
    shorten(text, (units / LETTER).floor().max(1.0) as usize)
}

/// The name of a client as far as it fits into `units`.
pub(in crate::report) fn fit_name(name: &str, units: f64) -> String {
    shorten_name(name, (units / LETTER).floor().max(1.0) as usize)
}

/// A straight line.
pub(in crate::report) fn line(page: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
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

/// A circle around a point.
pub(in crate::report) fn circle(page: &mut Markup, class: &str, centre: (f64, f64), radius: f64) {
    let (x, y) = (Px(centre.0), Px(centre.1));
    page.empty(
        "circle",
        &[("class", &class), ("cx", &x), ("cy", &y), ("r", &radius)],
    );
}

/// Text that begins at a point.
pub(in crate::report) fn label(page: &mut Markup, class: &str, at: (f64, f64), text: &str) {
    page.leaf(
        "text",
        &[("class", &class), ("x", &Px(at.0)), ("y", &Px(at.1))],
        text,
    );
}

/// The names of ticks under an axis, from left to right; one that would touch its neighbour is left out.
pub(in crate::report) fn tick_names(
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
