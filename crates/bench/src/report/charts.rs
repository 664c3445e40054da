//! The charts of a report, drawn once for the page and for pictures of their own.
//!
//! Each row becomes small charts that share one form ([`bars`], [`latency`]) and each family of rows curves ([`curves`]). All
//! are SVG, coloured by variables of a style sheet ([`style`]), so they follow light and dark. They are drawn 280 units wide
//! for columns of about as many pixels: text keeps its size on a desk and on a telephone. A client has one colour and one mark
//! throughout ([`colour`]), and the subject's name is bold.
//!
//! A [`Chart`] is laid out first and drawn where whoever asked for it wants to have it. [`advantage`] draws how one client
//! stands against another.
//!
//! [`markup::Markup`] is the only way by which text gets into a page or a picture. It closes what it opens and escapes what
//! it is given.

pub(super) mod advantage;
mod bars;
pub(super) mod chart;
pub(super) mod colour;
mod curves;
mod latency;
pub(super) mod markup;
mod scale;

use self::chart::Chart;
use crate::{
    record::{Machine, Report},
    report::{
        family::Family,
        figure::{Aspect, Figure, Percentile},
        published,
        view::RowView,
    },
};

/// The rules that all charts need.
const STYLE: &str = include_str!("charts/charts.css");

/// The rules for the charts of `report`, in which the client at `subject` is the one that it is about.
pub(super) fn style(report: &Report, subject: Option<&str>) -> String {
    let of = |subject: &str| {
        report
            .clients
            .iter()
            .position(|client| client.name == subject)
    };
    format!("{STYLE}{}", colour::style(subject.and_then(of)))
}

/// All charts of a row: its four aspects, what else others published, disk, latency.
pub(super) fn of_row<'v>(view: &'v RowView<'_>) -> Vec<Chart<'v>> {
    let mut charts = of_aspects(view, &Aspect::ALL);
    let besides = [Figure::Bandwidth, Figure::CpuPerGib].into_iter();
    let besides = besides.filter(|figure| is_published_besides(view, *figure));
    let disk = view.has(Figure::PeakDisk).then_some(Figure::PeakDisk);
    charts.extend(
        besides
            .chain(disk)
            .filter_map(|figure| bars::chart(view, figure)),
    );
    charts.extend(latency::chart(view));
    charts
}

/// The charts of a row for these questions.
pub(super) fn of_aspects<'v>(view: &'v RowView<'_>, aspects: &[Aspect]) -> Vec<Chart<'v>> {
    let figures = aspects.iter().map(|aspect| view.figure(*aspect));
    figures
        .filter_map(|figure| bars::chart(view, figure))
        .collect()
}

/// The curves of rows that differ in a number.
pub(super) fn of_family<'f>(family: &'f Family<'_, '_>) -> Vec<Chart<'f>> {
    let aspects = Aspect::ALL.into_iter();
    let aspects = aspects.filter_map(|aspect| curves::of_aspect(family, aspect));
    let percentiles = ["50", "99"].into_iter().filter_map(Percentile::parse);
    let latencies =
        percentiles.filter_map(|percentile| curves::of_figure(family, Figure::Latency(percentile)));
    aspects.chain(latencies).collect()
}

/// How the clients keep up as the store gets farther away.
pub(super) fn of_distance<'f>(family: &'f Family<'_, '_>) -> Vec<Chart<'f>> {
    let aspects = [Aspect::Speed, Aspect::Processor, Aspect::Memory].into_iter();
    aspects
        .filter_map(|aspect| curves::of_aspect(family, aspect))
        .collect()
}

/// The memory of `machine`, as people say it.
pub(super) fn memory(machine: &Machine) -> String {
    let bytes = machine.memory_bytes as f64;
    Figure::PeakMemory.unit_for(bytes).round_quantity(bytes)
}

/// Whether others published `figure` of a row whose own speed and cost are in other units.
fn is_published_besides(view: &RowView<'_>, figure: Figure) -> bool {
    let shown = Aspect::ALL
        .iter()
        .any(|aspect| view.figure(*aspect) == figure);
    !shown
        && view
            .published()
            .iter()
            .any(|entry| published::value(entry, figure).is_some())
}
