//! How one client stands against the best of the others: a bar to the right of a middle line when it is better, to the left
//! when it is worse, on a logarithmic axis that all such bars of a report share.

use super::markup::{Attributes, Markup, Px};
use crate::report::{
    ranking::{Place, RankedRow, Standing},
    units,
};

/// Half the width of a bar's drawing.
const HALF: f64 = 100.0;
/// How high it is.
pub(in crate::report) const HEIGHT: f64 = 10.0;
/// Bars do not grow beyond this many times.
const TIMES_MAX: f64 = 16.0;
/// The axis reaches at least this far, so that small margins look small.
const TIMES_MIN: f64 = 4.0;

/// How many times better the axis of `rows` reaches.
pub(in crate::report) fn reach(rows: &[&RankedRow<'_>]) -> f64 {
    let places = rows.iter().flat_map(|row| &row.places);
    let times = places.map(|place| place.advantage.max(1.0 / place.advantage));
    times
        .filter(|times| times.is_finite())
        .fold(TIMES_MIN, f64::max)
        .min(TIMES_MAX)
}

/// "1.33× better", "level", "3.1× worse".
pub(in crate::report) fn verdict(place: &Place<'_>) -> String {
    match place.standing {
        Standing::Level => "level".to_owned(),
        Standing::First => format!("{} better", units::factor(place.advantage)),
        Standing::Behind => format!("{} worse", units::factor(1.0 / place.advantage)),
    }
}

/// The bar of `place`, stretched to the width that `attributes` give it.
pub(in crate::report) fn draw(
    page: &mut Markup,
    place: &Place<'_>,
    reach: f64,
    attributes: Attributes<'_>,
) {
    let fraction = (place.advantage.ln() / reach.ln()).clamp(-1.0, 1.0);
    let fraction = if fraction.is_nan() { 0.0 } else { fraction };
    let class = match place.standing {
        Standing::First => "ahead",
        Standing::Level => "level",
        Standing::Behind => "behind",
    };
    let view = format!("0 0 {} {HEIGHT}", 2.0 * HALF);
    let own: Attributes<'_> = &[
        ("viewBox", &view),
        ("preserveAspectRatio", &"none"),
        ("aria-hidden", &"true"),
    ];
    page.within("svg", &[own, attributes].concat(), |page| {
        let x = HALF + HALF * fraction.min(0.0);
        let width = (HALF * fraction.abs()).max(0.6);
        bar(page, "track", (0.0, 2.0 * HALF), (4.5, 1.0));
        bar(page, class, (x, width), (0.0, HEIGHT));
        bar(page, "middle", (HALF - 0.5, 1.0), (0.0, HEIGHT));
    });
}

/// A rectangle, by where it begins and how far it reaches in each direction.
fn bar(page: &mut Markup, class: &str, (x, width): (f64, f64), (y, height): (f64, f64)) {
    let (x, y, width, height) = (Px(x), Px(y), Px(width), Px(height));
    let attributes: Attributes<'_> = &[
        ("class", &class),
        ("x", &x),
        ("y", &y),
        ("width", &width),
        ("height", &height),
    ];
    page.empty("rect", attributes);
}
