//! Latency percentiles: one line for each client, from the median to the tail, on a logarithmic axis.
//!
//! Latencies span decades and are compared by their ratio, so the axis is logarithmic and nothing is drawn from zero. The
//! first percentile is a full mark, the last a stroke, those between are hollow: the longer the line, the worse the tail.

use super::{
    chart::{Chart, WIDTH, circle, fit, fit_name, label, line, width},
    colour,
    markup::Markup,
    scale::Logarithmic,
};
use crate::report::{
    figure::{Figure, Percentile},
    units::Dimension,
    view::{ClientView, RowView},
};

const LEFT: f64 = 6.0;
const RIGHT: f64 = WIDTH - 6.0;
const LINE: f64 = 34.0;
const AXIS: f64 = 22.0;

struct Latency<'v, 'a> {
    view: &'v RowView<'a>,
    percentiles: Vec<Percentile>,
    axis: Logarithmic,
    clients: Vec<&'v ClientView<'a>>,
}

/// The percentiles of `view`; none when there are none.
pub(in crate::report) fn chart<'v>(view: &'v RowView<'_>) -> Option<Chart<'v>> {
    let latency = Latency::new(view)?;
    Some(Chart {
        title: "Latency".to_owned(),
        note: latency.note(),
        description: latency.description(),
        height: latency.end() + AXIS,
        draw: Box::new(move |page| latency.draw(page)),
    })
}

impl<'v, 'a> Latency<'v, 'a> {
    fn new(view: &'v RowView<'a>) -> Option<Self> {
        let percentiles = view.percentiles();
        let last = percentiles.last()?;
        let clients = view.sorted_by(Figure::Latency(*last)).into_iter();
        let clients: Vec<_> = clients
            .filter(|client| !medians(client, &percentiles).is_empty())
            .collect();
        let all = || {
            clients
                .iter()
                .flat_map(|client| medians(client, &percentiles))
                .map(|(_, value)| value)
        };
        let positive = all().filter(|value| *value > 0.0);
        let low = positive.min_by(f64::total_cmp)?;
        let axis = Logarithmic::decades(low, all().fold(low, f64::max));
        Some(Self {
            view,
            percentiles,
            axis,
            clients,
        })
    }

    fn note(&self) -> String {
        let last = self.percentiles.len() - 1;
        let marks = self
            .percentiles
            .iter()
            .enumerate()
            .map(|(index, percentile)| {
                let mark = match index {
                    0 => "●",
                    _ if index == last => "│",
                    _ => "○",
                };
                format!("{mark}\u{a0}{}\u{a0}%", percentile.name())
            });
        let marks = marks.collect::<Vec<_>>().join("  ");
        format!("{marks} of operations, left is better, logarithmic")
    }

    fn description(&self) -> String {
        let clients = self.clients.iter().map(|client| {
            let values = medians(client, &self.percentiles).into_iter();
            let values = values
                .map(|(percentile, value)| format!("{} % {}", percentile.name(), seconds(value)));
            format!("{}: {}", client.name, values.collect::<Vec<_>>().join(", "))
        });
        clients.collect::<Vec<_>>().join("; ")
    }

    fn end(&self) -> f64 {
        self.clients.len() as f64 * LINE + 2.0
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + self.axis.place(value) * (RIGHT - LEFT)
    }

    fn draw(&self, page: &mut Markup) {
        for tick in self.axis.ticks() {
            let x = self.x(tick);
            line(page, "grid", (x, 0.0), (x, self.end()));
            let class = match x {
                _ if x < LEFT + 20.0 => "tick first",
                _ if x > RIGHT - 20.0 => "tick last",
                _ => "tick",
            };
            label(
                page,
                class,
                (x, self.end() + 15.0),
                &Dimension::Seconds.unit_for(tick).round_quantity(tick),
            );
        }
        for (index, client) in self.clients.iter().enumerate() {
            page.within("g", &[("class", &colour::class(client.index))], |page| {
                self.draw_client(page, client, index as f64 * LINE);
            });
        }
    }

    fn draw_client(&self, page: &mut Markup, client: &ClientView<'_>, top: f64) {
        let values = medians(client, &self.percentiles);
        let numbers = fit(&numbers(&values), WIDTH * 0.68);
        label(page, "value last", (WIDTH, top + 13.0), &numbers);
        let free = WIDTH - width(numbers.chars().count() + 1);
        let name = fit_name(client.name, free);
        label(page, "name first", (0.0, top + 13.0), &name);
        let middle = top + 23.0;
        let places: Vec<f64> = values.iter().map(|(_, value)| self.x(*value)).collect();
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            line(page, "range", (*first, middle), (*last, middle));
        }
        for ((percentile, _), x) in values.iter().zip(&places) {
            self.draw_point(page, *percentile, (*x, middle));
        }
        debug_assert!(
            self.view
                .clients
                .iter()
                .any(|known| known.name == client.name)
        );
    }

    fn draw_point(&self, page: &mut Markup, percentile: Percentile, (x, y): (f64, f64)) {
        let is = |other: Option<&Percentile>| other == Some(&percentile);
        if is(self.percentiles.first()) {
            circle(page, "mark", (x, y), 4.2);
        } else if is(self.percentiles.last()) {
            line(page, "tail", (x, y - 5.0), (x, y + 5.0));
        } else {
            circle(page, "ring", (x, y), 3.6);
        }
    }
}

/// The median over the runs of each percentile that `client` has.
fn medians(client: &ClientView<'_>, percentiles: &[Percentile]) -> Vec<(Percentile, f64)> {
    let known = percentiles.iter().filter_map(|percentile| {
        let summary = client.summary(Figure::Latency(*percentile))?;
        Some((*percentile, summary.median))
    });
    known.collect()
}

/// More values than this do not fit behind a name; then the first and the last are given.
const VALUES_MAX: usize = 3;

fn numbers(values: &[(Percentile, f64)]) -> String {
    let texts: Vec<String> = values.iter().map(|(_, value)| seconds(*value)).collect();
    match &texts[..] {
        [first, .., last] if texts.len() > VALUES_MAX => format!("{first} to {last}"),
        _ => texts.join(" · "),
    }
}

fn seconds(value: f64) -> String {
    Dimension::Seconds.unit_for(value).quantity(value)
}
