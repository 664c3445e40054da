//! Charts: bars of one figure of all clients in a row, and curves of one figure over several rows.
//!
//! A chart is laid out here, in fractions of its axes, and drawn by `templates/chart.svg`, for the page and for pictures
//! alike. Its elements have classes and no colours: `templates/chart.css` has those, for light and for dark paper, and one
//! for each client. Axes begin at zero. What others published is a hollow bar or a broken line on the same axis; what lies
//! far beyond our values ends at an arrow, so that a foreign machine never shrinks our bars.

use penstock_base::text::truncate;
use serde::Serialize;

use crate::{
    record::Published,
    report::{
        figure::Figure,
        pictures::without_paths,
        published,
        statistics::Summary,
        summary::{ClientView, Outcome, RowView},
        units::{self, Unit},
    },
};

/// Clients that have a colour; all others are grey.
const COLOURS: usize = 8;
/// The class of what others published.
pub(super) const ELSEWHERE: &str = "elsewhere";
/// Letters of a name that have place beside bars and behind curves.
const NAME_LETTERS: usize = 14;
/// Letters that have place where a bar would be.
const VALUE_LETTERS: usize = 25;
/// Published figures may stretch the axis of bars by as much.
const STRETCH_MAX: f64 = 1.4;
/// Units from bar to bar, and below the last one.
const LINE: f64 = 22.0;
/// Units from the lower axis of curves to the top, and what stands around them.
const CURVES: (f64, f64) = (166.0, 50.0);
/// Units between names at the ends of curves.
const NAME_STEP: f64 = 14.0;

/// A chart that is laid out: it has bars or curves.
#[derive(Debug, Default, Serialize)]
pub(super) struct Chart {
    pub(super) title: String,
    /// Unit and direction: "MiB/s, more is better".
    pub(super) note: String,
    pub(super) height: f64,
    /// Fractions of the axis of values with their names.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) bars: Vec<Bar>,
    pub(super) curves: Vec<Curve>,
    /// What the other axis of curves counts, and its places.
    pub(super) of: String,
    pub(super) places: Vec<String>,
}

/// A client that was measured, or not, or what somebody published.
#[derive(Debug, Serialize)]
pub(super) struct Bar {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) said: String,
    pub(super) value: String,
    pub(super) best: bool,
    pub(super) at: Option<[f64; 3]>,
}

/// The values of one client at several places, or what somebody published.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) class: String,
    pub(super) name: String,
    pub(super) said: String,
    /// Where its name stands behind its end, in units from the lower axis; published ones have none.
    pub(super) name_at: Option<f64>,
    /// How far along, the least run, the median, the greatest run.
    pub(super) points: Vec<[f64; 4]>,
}

/// The class that gives an element the colour of the client at `index`.
pub(super) fn class(index: usize) -> String {
    match index {
        0..COLOURS => format!("k{index}"),
        _ => "kx".to_owned(),
    }
}

/// `figure` of all clients of a row, best first; none when no client has it. A client that failed keeps its line and says
/// so; one that was not run has none.
pub(super) fn bars(view: &RowView<'_>, figure: Figure) -> Option<Chart> {
    let greatest = view.greatest(figure)?;
    let elsewhere = view.row.published.iter();
    let elsewhere = elsewhere.filter_map(|it| Some((it, published::value(it, figure)?)));
    let elsewhere: Vec<(&Published, f64)> = elsewhere.collect();
    let near = elsewhere.iter().map(|(_, value)| *value);
    let near = near.filter(|value| *value <= greatest * STRETCH_MAX);
    let end = near.fold(greatest, f64::max);
    let axis = Axis::to(end, figure.unit_for(greatest), 2.0);
    let mut clients = view.sorted_by(figure);
    clients.retain(|client| client.outcome() != Outcome::NotRun);
    let clients = clients.into_iter();
    let bars = clients.map(|client| Bar::of((view, client), figure, &axis));
    let hollow = elsewhere.iter();
    let hollow = hollow.map(|(entry, value)| Bar::elsewhere(entry, *value, &axis));
    let bars: Vec<_> = bars.chain(hollow).collect();
    let legend = elsewhere.first();
    let legend = legend.map_or("", |_| "; hollow: measured elsewhere");
    Some(Chart {
        title: figure.name(),
        note: format!("{}, {}{legend}", axis.unit.name, figure.direction()),
        height: (bars.len() + 1) as f64 * LINE + 2.0,
        ticks: axis.ticks,
        bars,
        ..Chart::default()
    })
}

impl Bar {
    fn of((view, client): (&RowView<'_>, &ClientView<'_>), figure: Figure, axis: &Axis) -> Self {
        let summary = client.summary(figure);
        let value = match summary {
            Some(own) => format!("{} {}", axis.unit.number(own.median), units::spread(&own)),
            None => without_paths(&client.absence().unwrap_or("not counted".to_owned())),
        };
        let mark = client.notes().first().map_or("", |_| " †");
        Self {
            class: class(client.index),
            name: short_name(client.name, NAME_LETTERS) + mark,
            said: format!("{}: {}", client.name, value.trim_end()),
            value: truncate(&value, VALUE_LETTERS),
            best: view.is_best(client, figure),
            at: summary.map(|own| [own.low, own.median, own.high].map(|value| axis.at(value))),
        }
    }

    fn elsewhere(entry: &Published, value: f64, axis: &Axis) -> Self {
        let number = axis.unit.number(value);
        Self {
            class: ELSEWHERE.to_owned(),
            name: short_name(&entry.client, NAME_LETTERS),
            said: format!("{}: {}", entry.client, entry.source),
            value: match value > axis.end {
                true => format!("→ {number}"),
                false => number,
            },
            best: false,
            at: Some([axis.at(value); 3]),
        }
    }
}

pub(super) struct Series<'a> {
    pub(super) name: &'a str,
    pub(super) class: String,
    /// Values, each with the number of its place.
    pub(super) points: Vec<(usize, Summary)>,
}

/// `figure` at evenly spaced `places` of what `of` names; none when no client has two points. What others published leaves
/// the picture where it is above all that was measured here.
pub(super) fn curves(
    figure: Figure,
    of: &str,
    places: Vec<String>,
    mut series: Vec<Series<'_>>,
) -> Option<Chart> {
    series.retain(|it| it.points.len() > 1);
    let ours = series.iter().filter(|it| it.class != ELSEWHERE);
    let highs = ours.flat_map(|it| &it.points).map(|(_, it)| it.high);
    let high = highs.max_by(f64::total_cmp)?;
    for elsewhere in series.iter_mut().filter(|it| it.class == ELSEWHERE) {
        elsewhere.points.retain(|(_, it)| it.median <= high);
    }
    series.retain(|it| it.points.len() > 1);
    let axis = Axis::to(high, figure.unit_for(high), 4.0);
    let elsewhere = series.iter().filter(|it| it.class == ELSEWHERE);
    let legend = elsewhere.map(|it| format!("; broken line: {}, measured elsewhere", it.name));
    let legend: String = legend.collect();
    let curves = series.iter().map(|it| Curve::of(it, &axis, &places));
    let mut curves: Vec<_> = curves.collect();
    name_ends(&mut curves);
    Some(Chart {
        title: figure.name(),
        note: format!("{}, {}{legend}", axis.unit.name, figure.direction()),
        height: CURVES.0 + CURVES.1,
        ticks: axis.ticks,
        curves,
        of: of.to_owned(),
        places,
        ..Chart::default()
    })
}

impl Curve {
    fn of(series: &Series<'_>, axis: &Axis, places: &[String]) -> Self {
        let steps = (places.len().max(2) - 1) as f64;
        let points = series.points.iter().map(|(place, it)| {
            let [low, median, high] = [it.low, it.median, it.high].map(|value| axis.at(value));
            [*place as f64 / steps, low, median, high]
        });
        let values = series.points.iter().map(|(place, it)| {
            let value = axis.unit.quantity(it.median);
            format!("{value} at {}", places[*place])
        });
        let values: Vec<String> = values.collect();
        Self {
            class: series.class.clone(),
            name: short_name(series.name, NAME_LETTERS),
            said: format!("{}: {}", series.name, values.join(", ")),
            name_at: None,
            points: points.collect(),
        }
    }
}

/// Places the names of curves behind their ends, moved apart where they would touch.
fn name_ends(curves: &mut [Curve]) {
    let ours = curves.iter_mut().filter(|curve| curve.class != ELSEWHERE);
    let ends = ours.filter_map(|curve| Some((curve.points.last()?[2] * CURVES.0, curve)));
    let mut ends: Vec<_> = ends.collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wanted: Vec<f64> = ends.iter().map(|(end, _)| *end).collect();
    for ((_, curve), place) in ends.into_iter().zip(apart(&wanted)) {
        curve.name_at = Some(place);
    }
}

/// Ascending places moved apart by [`NAME_STEP`], near to where they were, and below the top unless they are too many.
fn apart(wanted: &[f64]) -> Vec<f64> {
    let mut places = wanted.to_vec();
    let mut free_to = CURVES.0;
    for place in places.iter_mut().rev() {
        *place = place.min(free_to);
        free_to = *place - NAME_STEP;
    }
    let mut free_from = 0.0_f64;
    for place in &mut places {
        *place = place.max(free_from);
        free_from = *place + NAME_STEP;
    }
    places
}

/// An axis from zero: its end, and round values along it as fractions of it.
struct Axis {
    unit: Unit,
    end: f64,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    fn to(end: f64, unit: Unit, ticks: f64) -> Self {
        let end = if end > 0.0 { end } else { unit.size };
        let least = end / unit.size / ticks;
        let power = 10_f64.powf(least.log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0].map(|step| step * power);
        // A little slack, so that 1.9999999 does not become 2.5.
        let step = steps.into_iter().find(|step| *step >= least * 0.999_999);
        let step = step.unwrap_or(10.0 * power);
        let count = (end / unit.size / step * 1.000_001).floor() as usize;
        let ticks = (0..=count).map(|index| index as f64 * step);
        let ticks = ticks.map(|tick| (tick * unit.size / end, units::round(tick)));
        let ticks = ticks.collect();
        Self { unit, end, ticks }
    }

    fn at(&self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }
}

/// The name of a client with at most `letters`. Clients of one family begin alike and differ at their ends, so what is cut
/// is in the middle.
fn short_name(name: &str, letters: usize) -> String {
    let count = name.chars().count();
    if count <= letters {
        return name.to_owned();
    }
    let head = (letters - 1) / 3;
    let tail = name.chars().skip(count + 1 + head - letters);
    name.chars().take(head).chain(['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::report::{specimen, summary};

    #[test]
    fn ticks_are_round() {
        let unit = Figure::Requests.unit_for(1.0);
        let names = |end| {
            let ticks = Axis::to(end, unit, 4.0).ticks.into_iter();
            ticks.map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(1619.0), ["0", "500", "1,000", "1,500"]);
        assert_eq!(Axis::to(0.0, unit, 4.0).end, 1.0);
        assert_eq!(Axis::to(f64::NAN, unit, 4.0).end, 1.0);
    }

    #[test]
    fn names_that_begin_alike_can_be_told_apart() {
        let names = [
            "penstock-stream-direct",
            "penstock-stream-fuse",
            "penstock-stream-ext4",
        ];
        let short: std::collections::BTreeSet<_> = names.map(|name| short_name(name, 10)).into();
        assert_eq!(short.len(), names.len(), "{short:?}");
        assert_eq!(short_name("penstock-stream-direct", 10), "pen…direct");
        assert_eq!(short_name("penstock", 10), "penstock");
    }

    #[test]
    fn a_foreign_machine_does_not_shrink_our_bars() {
        let mut report = specimen::report();
        let row = &mut report.tables[0].rows[0];
        let figures = [("bandwidth".to_owned(), "900 GB/s".to_owned())].into();
        row.published = vec![Published {
            client: "huge".to_owned(),
            figures,
            source: "a paper".to_owned(),
        }];
        let views = summary::rows(&report);
        let chart = bars(&views[0], Figure::Bandwidth).expect("measured");
        let huge = chart.bars.last().expect("it is drawn");
        assert!(huge.value.starts_with("→ ") && chart.note.contains("measured elsewhere"));
        report.tables[0].rows[0].published.clear();
        let without = bars(&summary::rows(&report)[0], Figure::Bandwidth).expect("measured");
        assert_eq!(chart.bars[0].at, without.bars[0].at);
    }

    proptest! {
        #[test]
        fn an_axis_holds_its_values_with_few_ticks(end in 1e-9..1e30_f64, ticks in 2.0..6.0_f64) {
            let axis = Axis::to(end, Figure::Requests.unit_for(end), ticks);
            let count = axis.ticks.len();
            prop_assert!(count >= 2 && count as f64 <= ticks + 2.0, "{count}");
            prop_assert!(axis.ticks.iter().all(|(at, _)| *at <= 1.000_01));
        }

        #[test]
        fn names_never_touch_and_stay_above_the_axis(mut wanted in prop::collection::vec(0.0..CURVES.0, 0..12)) {
            wanted.sort_by(f64::total_cmp);
            let places = apart(&wanted);
            prop_assert!(places.windows(2).all(|pair| pair[1] - pair[0] > NAME_STEP - 1e-6));
            prop_assert!(places.iter().all(|place| *place >= 0.0));
        }
    }
}
