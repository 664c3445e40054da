//! Bars: one figure of all clients in a row, best first, from zero, with whiskers over the range of the runs.
//!
//! A client that failed keeps its line and says so where its bar would be; one that was not run has none and is named under
//! the charts. What others published has a lane of its own
//! under the bars, as hollow marks on the same axis; what lies beyond our axis is an arrow at its end, so that a foreign
//! machine never shrinks our bars.

use super::{
    chart::{self, Chart, WIDTH, circle, fit, fit_name, label, line},
    colour,
    markup::{Markup, Px},
    scale::Linear,
};
use crate::{
    record::Published,
    report::{
        figure::Figure,
        published,
        statistics::Summary,
        units::{self, Unit},
        view::{ClientView, Outcome, RowView},
    },
};

/// Between a bar and the value behind it, or a mark and its value.
const BEHIND: f64 = 9.0;
/// The lane of names is as wide as they need, within these.
const NAMES: (f64, f64) = (52.0, 126.0);
const LINE: f64 = 22.0;
const BAR: f64 = 13.0;
const AXIS: f64 = 22.0;
/// Between the bars and the lane of published figures.
const LANE_HEAD: f64 = 24.0;
/// Published figures may stretch the axis by as much.
const STRETCH_MAX: f64 = 1.4;

/// A chart that is being laid out.
struct Bars<'v, 'a> {
    view: &'v RowView<'a>,
    figure: Figure,
    unit: Unit,
    axis: Linear,
    clients: Vec<&'v ClientView<'a>>,
    published: Vec<(&'a Published, f64)>,
    /// Where bars begin.
    left: f64,
    /// Where the longest bar ends, so that values fit behind it.
    right: f64,
}

/// `figure` of `view`; none when no client has it.
pub(in crate::report) fn chart<'v>(view: &'v RowView<'_>, figure: Figure) -> Option<Chart<'v>> {
    let bars = Bars::new(view, figure)?;
    let direction = if figure.more_is_better() {
        "longer is better"
    } else {
        "shorter is better"
    };
    Some(Chart {
        title: figure.name(),
        note: format!("{}, {direction}", bars.unit.name),
        description: bars.description(),
        height: bars.height(),
        draw: Box::new(move |page| bars.draw(page)),
    })
}

impl<'v, 'a> Bars<'v, 'a> {
    fn new(view: &'v RowView<'a>, figure: Figure) -> Option<Self> {
        let greatest = view.greatest(figure)?;
        let unit = figure.unit_for(greatest);
        let published: Vec<_> = view
            .published()
            .iter()
            .filter_map(|entry| Some((entry, published::value(entry, figure)?)))
            .collect();
        let near = published.iter().map(|(_, value)| *value);
        let near = near.filter(|value| *value <= greatest * STRETCH_MAX);
        let axis = Linear::to(near.fold(greatest, f64::max) / unit.size, 3.0);
        let mut clients = view.sorted_by(figure);
        clients.retain(|client| client.outcome() != Outcome::NotRun);
        Some(Self {
            view,
            figure,
            unit,
            axis,
            clients,
            published,
            left: Self::lane_of_names(view),
            right: WIDTH - Self::lane_of_values(view, figure, unit),
        })
    }

    /// A lane that holds the names of all clients, so that charts of one row begin at the same place.
    fn lane_of_names(view: &RowView<'_>) -> f64 {
        let mark = |client: &ClientView<'_>| if client.notes().is_empty() { 0 } else { 2 };
        let clients = view
            .clients
            .iter()
            .map(|client| client.name.chars().count() + mark(client));
        let others = view
            .published()
            .iter()
            .map(|entry| entry.client.chars().count());
        let longest = clients.chain(others).max().unwrap_or(0);
        (chart::width(longest) + 16.0).clamp(NAMES.0, NAMES.1)
    }

    /// A lane that holds the longest value of all clients and of others.
    fn lane_of_values(view: &RowView<'_>, figure: Figure, unit: Unit) -> f64 {
        let clients = view.clients.iter().filter_map(|it| it.summary(figure));
        let clients = clients.map(|it| unit.number(it.median) + " " + &units::spread(&it));
        let others = view.published().iter();
        let others = others.filter_map(|entry| published::value(entry, figure));
        let others = others.map(|value| unit.number(value));
        let letters = clients
            .chain(others)
            .map(|text| text.trim().chars().count());
        BEHIND + chart::width(letters.max().unwrap_or(0) + 1)
    }

    fn bars_end(&self) -> f64 {
        self.clients.len() as f64 * LINE + 2.0
    }

    fn lane_end(&self) -> f64 {
        match self.published.len() {
            0 => self.bars_end(),
            count => self.bars_end() + LANE_HEAD + count as f64 * LINE,
        }
    }

    fn height(&self) -> f64 {
        self.lane_end() + AXIS
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.axis.place(value / self.unit.size) * (self.right - self.left)
    }

    fn description(&self) -> String {
        let clients = self
            .clients
            .iter()
            .map(|client| match client.summary(self.figure) {
                Some(summary) => format!(
                    "{} {} {}",
                    client.name,
                    self.unit.quantity(summary.median),
                    units::spread(&summary)
                ),
                None => format!("{} {}", client.name, absence(client)),
            });
        clients.collect::<Vec<_>>().join("; ")
    }

    fn draw(&self, page: &mut Markup) {
        self.draw_axis(page);
        for (index, client) in self.clients.iter().enumerate() {
            let middle = (index as f64 + 0.5) * LINE + 1.0;
            page.within("g", &[("class", &colour::class(client.index))], |page| {
                self.draw_client(page, client, middle);
            });
        }
        line(page, "base", (self.left, 0.0), (self.left, self.lane_end()));
        if !self.published.is_empty() {
            self.draw_lane(page);
        }
    }

    fn draw_axis(&self, page: &mut Markup) {
        let ticks = self.axis.ticks().into_iter();
        let ticks: Vec<_> = ticks
            .map(|tick| (self.x(tick * self.unit.size), units::round(tick)))
            .collect();
        for (x, _) in &ticks {
            line(page, "grid", (*x, 0.0), (*x, self.lane_end()));
        }
        chart::tick_names(page, self.lane_end() + 15.0, ticks);
    }

    fn draw_client(&self, page: &mut Markup, client: &ClientView<'_>, middle: f64) {
        let mark = if client.notes().is_empty() {
            ""
        } else {
            " †"
        };
        let name = format!("{}{mark}", fit_name(client.name, self.left - 10.0));
        page.leaf("title", &[], &self.tooltip(client));
        label(page, "name", (self.left - 8.0, middle + 4.0), &name);
        let Some(summary) = client.summary(self.figure) else {
            let text = fit(&absence(client), WIDTH - self.left - 10.0);
            let class = if client.absence().is_some() {
                "absent"
            } else {
                "quiet"
            };
            return label(page, class, (self.left + 7.0, middle + 4.0), &text);
        };
        let (x, width) = (
            Px(self.left),
            Px((self.x(summary.median) - self.left).max(1.0)),
        );
        let y = Px(middle - BAR / 2.0);
        page.empty(
            "rect",
            &[
                ("class", &"bar"),
                ("x", &x),
                ("y", &y),
                ("width", &width),
                ("height", &Px(BAR)),
            ],
        );
        self.draw_whisker(page, &summary, middle);
        self.draw_value(page, client, &summary, middle);
    }

    fn draw_whisker(&self, page: &mut Markup, summary: &Summary, middle: f64) {
        let (low, high) = (self.x(summary.low), self.x(summary.high));
        if summary.count < 2 || high - low < 1.0 {
            return;
        }
        line(page, "whisker", (low, middle), (high, middle));
        for end in [low, high] {
            line(page, "whisker", (end, middle - 3.0), (end, middle + 3.0));
        }
    }

    fn draw_value(
        &self,
        page: &mut Markup,
        client: &ClientView<'_>,
        summary: &Summary,
        middle: f64,
    ) {
        let best = self.view.is_best(client, self.figure);
        let class = if best { "value best" } else { "value" };
        let x = Px(self.x(summary.high.max(summary.median)) + 6.0);
        page.within(
            "text",
            &[("class", &class), ("x", &x), ("y", &Px(middle + 4.0))],
            |page| {
                page.text(&self.unit.number(summary.median));
                page.leaf(
                    "tspan",
                    &[("class", &"spread")],
                    &format!(" {}", units::spread(summary)),
                );
            },
        );
    }

    fn tooltip(&self, client: &ClientView<'_>) -> String {
        let Some(summary) = client.summary(self.figure) else {
            return format!("{}: {}", client.name, absence(client));
        };
        let (low, high) = (
            self.unit.number(summary.low),
            self.unit.quantity(summary.high),
        );
        let median = self.unit.quantity(summary.median);
        format!(
            "{}: {median}, runs {low} to {high} (n = {})",
            client.name, summary.count
        )
    }

    fn draw_lane(&self, page: &mut Markup) {
        let top = self.bars_end();
        line(page, "lane", (0.0, top + 6.0), (WIDTH, top + 6.0));
        label(page, "lane-name", (0.0, top + 20.0), "measured elsewhere");
        for (index, (entry, value)) in self.published.iter().enumerate() {
            let middle = top + LANE_HEAD + (index as f64 + 0.5) * LINE;
            page.within("g", &[("class", &"elsewhere")], |page| {
                page.leaf("title", &[], &format!("{}: {}", entry.client, entry.source));
                self.draw_published(page, (entry, *value), middle);
            });
        }
    }

    fn draw_published(&self, page: &mut Markup, (entry, value): (&Published, f64), middle: f64) {
        label(
            page,
            "name",
            (self.left - 8.0, middle + 4.0),
            &fit(&entry.client, self.left - 10.0),
        );
        let beyond = value / self.unit.size > self.axis.end;
        let x = self.x(value);
        if beyond {
            let arrow = format!(
                "M{} {}l6 5l-6 5M{} {}h12",
                Px(x - 6.0),
                Px(middle - 5.0),
                Px(x - 12.0),
                Px(middle)
            );
            page.empty("path", &[("class", &"hollow"), ("d", &arrow)]);
        } else {
            circle(page, "hollow", (x, middle), 4.5);
        }
        label(
            page,
            "value",
            (x + BEHIND, middle + 4.0),
            &self.unit.number(value),
        );
    }
}

fn absence(client: &ClientView<'_>) -> String {
    client.absence().unwrap_or_else(|| "not counted".to_owned())
}
