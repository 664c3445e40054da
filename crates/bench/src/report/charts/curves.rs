//! Curves: how a figure of all clients goes with the size of something, over a family of rows.
//!
//! The horizontal axis is logarithmic because families double or quadruple, or has even steps for latency profiles; the vertical one is straight from zero. Each line
//! ends in its client's name, moved apart where ends meet; whiskers show the range of the runs at each point. What others
//! published about the members is a broken line, which leaves the picture where it is above all that was measured here.

use std::fmt::Write as _;

use super::{
    chart::{self, Chart, WIDTH, fit_name, label, line},
    colour,
    markup::{Markup, Px},
    scale::{Linear, Logarithmic},
};
use crate::report::{
    family::{Family, Spacing},
    figure::{Aspect, Figure},
    published,
    statistics::Summary,
    units::{self, Unit},
};

const LEFT: f64 = 44.0;
const RIGHT: f64 = 192.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 176.0;
const HEIGHT: f64 = 216.0;
/// Between names at the ends of lines.
const NAME_STEP: f64 = 14.0;

/// The points of one client.
struct Curve<'a> {
    name: &'a str,
    index: usize,
    points: Vec<(f64, Summary)>,
}

struct Curves<'f, 'v, 'a> {
    family: &'f Family<'v, 'a>,
    figure: Figure,
    unit: Unit,
    y: Linear,
    curves: Vec<Curve<'a>>,
    references: Vec<Reference<'a>>,
}

/// What a client came to elsewhere.
struct Reference<'a> {
    name: &'a str,
    points: Vec<(f64, f64)>,
}

/// `aspect` of `family`; none when fewer than two points are known.
pub(in crate::report) fn of_aspect<'f>(
    family: &'f Family<'_, '_>,
    aspect: Aspect,
) -> Option<Chart<'f>> {
    let first = family.members.first()?;
    of_figure(family, first.row.figure(aspect))
}

/// `figure` of `family`; none when fewer than two points are known.
pub(in crate::report) fn of_figure<'f>(
    family: &'f Family<'_, '_>,
    figure: Figure,
) -> Option<Chart<'f>> {
    let curves = Curves::new(family, figure)?;
    let direction = if curves.figure.more_is_better() {
        "higher is better"
    } else {
        "lower is better"
    };
    let names = curves.reference_names();
    Some(Chart {
        title: curves.figure.name(),
        note: format!("{}, {direction}{names}", curves.unit.name),
        description: curves.description(),
        height: HEIGHT,
        draw: Box::new(move |page| curves.draw(page)),
    })
}

impl<'f, 'v, 'a> Curves<'f, 'v, 'a> {
    fn new(family: &'f Family<'v, 'a>, figure: Figure) -> Option<Self> {
        let curves = curves(family, figure);
        let high = curves
            .iter()
            .flat_map(|curve| &curve.points)
            .map(|(_, summary)| summary.high);
        let high = high.max_by(f64::total_cmp)?;
        let unit = figure.unit_for(high);
        let y = Linear::to(high / unit.size, 4.0);
        Some(Self {
            family,
            figure,
            unit,
            y,
            curves,
            references: references(family, figure),
        })
    }

    fn reference_names(&self) -> String {
        let shown = self.references.iter();
        let shown = shown.filter(|it| below_top(&it.points, self.top()).len() > 1);
        let names: Vec<_> = shown.map(|it| it.name).collect();
        match names.as_slice() {
            [] => String::new(),
            names => format!("; broken line: {}, measured elsewhere", names.join("; ")),
        }
    }

    /// Where `number` lies on the horizontal axis, as a fraction of it.
    fn along(&self, number: f64) -> f64 {
        let ends = self.family.members.first().zip(self.family.members.last());
        let (first, last) = ends.map_or((0.0, 1.0), |(first, last)| (first.at, last.at));
        match self.family.spacing {
            Spacing::Logarithmic => {
                Logarithmic::between(first.max(1.0), last).place(number.max(1.0))
            }
            Spacing::Even => (number - first) / (last - first).max(1.0),
        }
    }

    fn label_of(&self, number: f64) -> &str {
        let mut members = self.family.members.iter();
        members
            .find(|member| member.at == number)
            .map_or("", |member| &member.label)
    }

    fn place(&self, number: f64, value: f64) -> (f64, f64) {
        let x = LEFT + self.along(number) * (RIGHT - LEFT);
        (x, self.height_of(value))
    }

    fn height_of(&self, value: f64) -> f64 {
        BOTTOM - self.y.place(value / self.unit.size) * (BOTTOM - TOP)
    }

    /// The greatest value that the picture holds.
    fn top(&self) -> f64 {
        self.y.end * self.unit.size
    }

    fn description(&self) -> String {
        let mut text = String::new();
        for curve in &self.curves {
            let _ = write!(text, "{}:", curve.name);
            for (number, summary) in &curve.points {
                let _ = write!(
                    text,
                    " {} at {},",
                    self.unit.quantity(summary.median),
                    self.label_of(*number)
                );
            }
            text.push_str("; ");
        }
        text
    }

    fn draw(&self, page: &mut Markup) {
        self.draw_axes(page);
        for reference in &self.references {
            self.draw_reference(page, reference);
        }
        for curve in self.curves.iter().rev() {
            page.within("g", &[("class", &colour::class(curve.index))], |page| {
                self.draw_curve(page, curve);
            });
        }
        self.draw_names(page);
    }

    fn draw_axes(&self, page: &mut Markup) {
        for tick in self.y.ticks() {
            let (_, y) = self.place(1.0, tick * self.unit.size);
            line(
                page,
                if tick == 0.0 { "base" } else { "grid" },
                (LEFT, y),
                (RIGHT, y),
            );
            let text = units::round(tick);
            label(page, "tick last", (LEFT - 6.0, y + 4.0), &text);
        }
        let members = self.family.members.iter();
        let ticks: Vec<_> = members
            .map(|member| (self.place(member.at, 0.0).0, member.label.clone()))
            .collect();
        for (x, _) in &ticks {
            line(page, "base", (*x, BOTTOM), (*x, BOTTOM + 4.0));
        }
        chart::tick_names(page, BOTTOM + 17.0, ticks);
        let middle = (LEFT + RIGHT) / 2.0;
        label(
            page,
            "tick axis-name",
            (middle, BOTTOM + 34.0),
            &self.family.of,
        );
    }

    fn draw_reference(&self, page: &mut Markup, reference: &Reference<'_>) {
        let points = reference.points.iter();
        let points: Vec<_> = points
            .map(|(number, value)| (self.place(*number, *value).0, *value))
            .collect();
        let shown = below_top(&points, self.top());
        let places: Vec<_> = shown
            .into_iter()
            .map(|(x, value)| (x, self.height_of(value)))
            .collect();
        let path = path_of(&places);
        page.within("g", &[("class", &"elsewhere")], |page| {
            let title = format!("{}, measured elsewhere", reference.name);
            page.leaf("title", &[], &title);
            page.empty("path", &[("class", &"reference"), ("d", &path)]);
        });
    }

    fn draw_curve(&self, page: &mut Markup, curve: &Curve<'_>) {
        let places: Vec<_> = curve
            .points
            .iter()
            .map(|(number, it)| self.place(*number, it.median))
            .collect();
        let path = path_of(&places);
        page.empty("path", &[("class", &"curve"), ("d", &path)]);
        for ((number, summary), place) in curve.points.iter().zip(places) {
            let (x, low) = self.place(*number, summary.low);
            let (_, high) = self.place(*number, summary.high);
            if low - high > 9.0 {
                line(page, "range", (x, low), (x, high));
            }
            page.within("g", &[], |page| {
                let value = self.unit.quantity(summary.median);
                page.leaf(
                    "title",
                    &[],
                    &format!("{}: {value} at {}", curve.name, self.label_of(*number)),
                );
                colour::mark(page, curve.index, place);
            });
        }
    }

    fn draw_names(&self, page: &mut Markup) {
        let ends = self.curves.iter().filter_map(|curve| {
            let (number, summary) = curve.points.last()?;
            Some((curve, self.place(*number, summary.median)))
        });
        let mut ends: Vec<_> = ends.collect();
        ends.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, (_, y))| *y).collect();
        for ((curve, (x, y)), name_y) in ends.iter().zip(apart(&wanted)) {
            page.within("g", &[("class", &colour::class(curve.index))], |page| {
                let from = RIGHT + 14.0;
                line(page, "leader", (x + 6.0, *y), (from - 2.0, name_y));
                label(
                    page,
                    "name first",
                    (from, name_y + 4.0),
                    &fit_name(curve.name, WIDTH - from),
                );
            });
        }
    }
}

/// The curves of all clients that have at least two points, in the report's order.
fn curves<'a>(family: &Family<'_, 'a>, figure: Figure) -> Vec<Curve<'a>> {
    let mut curves: Vec<Curve<'a>> = Vec::new();
    for member in &family.members {
        for client in &member.row.clients {
            let Some(summary) = client.summary(figure) else {
                continue;
            };
            match curves.iter_mut().find(|curve| curve.name == client.name) {
                Some(curve) => curve.points.push((member.at, summary)),
                None => {
                    let points = vec![(member.at, summary)];
                    curves.push(Curve {
                        name: client.name,
                        index: client.index,
                        points,
                    });
                }
            }
        }
    }
    curves.retain(|curve| curve.points.len() > 1);
    curves
}

/// What others published about `figure` of at least two members, by client.
fn references<'a>(family: &Family<'_, 'a>, figure: Figure) -> Vec<Reference<'a>> {
    let mut references: Vec<Reference<'a>> = Vec::new();
    if family.spacing == Spacing::Even {
        // What was published of a workload is the same at each latency profile of ours.
        return references;
    }
    for member in &family.members {
        for entry in member.row.published() {
            let Some(value) = published::value(entry, figure) else {
                continue;
            };
            let point = (member.at, value);
            match references.iter_mut().find(|it| it.name == entry.client) {
                Some(reference) => reference.points.push(point),
                None => references.push(Reference {
                    name: &entry.client,
                    points: vec![point],
                }),
            }
        }
    }
    references.retain(|reference| reference.points.len() > 1);
    references
}

fn path_of(places: &[(f64, f64)]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in places.iter().enumerate() {
        let command = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{command}{} {}", Px(*x), Px(*y));
    }
    path
}

/// The beginning of a line of places and values, up to where it leaves the picture at `top`.
fn below_top(points: &[(f64, f64)], top: f64) -> Vec<(f64, f64)> {
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for &(x, value) in points {
        if value <= top {
            kept.push((x, value));
            continue;
        }
        if let Some(&(last_x, last)) = kept.last() {
            let part = (top - last) / (value - last);
            kept.push((last_x + part * (x - last_x), top));
        }
        break;
    }
    kept
}

/// Ascending places moved apart by [`NAME_STEP`], near to where they were and above the axis.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut places = Vec::with_capacity(wanted.len());
    let mut free_from = f64::NEG_INFINITY;
    for place in wanted {
        let place = place.max(free_from);
        places.push(place);
        free_from = place + NAME_STEP;
    }
    let mut free_to = BOTTOM;
    for place in places.iter_mut().rev() {
        *place = place.min(free_to);
        free_to = *place - NAME_STEP;
    }
    places
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_ends_where_it_leaves_the_picture() {
        let inside = [(0.0, 10.0), (10.0, 60.0)];
        assert_eq!(below_top(&inside, 60.0), inside);
        let leaving = [(0.0, 50.0), (10.0, 70.0), (20.0, 70.0), (30.0, 1.0)];
        assert_eq!(below_top(&leaving, 60.0), [(0.0, 50.0), (5.0, 60.0)]);
        assert_eq!(below_top(&[(0.0, 61.0), (1.0, 50.0)], 60.0), []);
    }

    proptest! {
        #[test]
        fn names_never_touch_and_stay_above_the_axis(mut wanted in prop::collection::vec(TOP..BOTTOM, 0..12)) {
            wanted.sort_by(f64::total_cmp);
            let places = apart(&wanted);
            prop_assert!(places.windows(2).all(|pair| pair[1] - pair[0] > NAME_STEP - 1e-6));
            prop_assert!(places.iter().all(|place| *place <= BOTTOM));
        }
    }
}
