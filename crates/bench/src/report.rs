//! The writers of a report: pure functions of [`crate::record::Report`].
//!
//! ```text
//! record ── figure ── summary ── sections ─┬─ terminal    a table while and after it runs
//!            units, statistics     │       ├─ markdown    tables with conditions and footnotes
//!                             chart┘       ├─ html        one page of charts
//!                         published        └─ pictures    the charts as files, for documents
//! ```
//!
//! - [`figure`] knows each figure: what it is called, its unit, which way is better, how it follows from a sample.
//! - [`statistics`] turns the repeats of one figure into a median and a spread, and says when two of them differ.
//! - [`summary`] joins a row with its clients, and says who is first, where, and by how much.
//! - [`sections`] puts rows that belong together under one heading, with their [`chart`]s and notes.
//! - [`published`] reads figures that others printed.
//!
//! Page, pictures and Markdown are templates (`templates/`) over the record and its sections. Names and errors in a report
//! come from other programs: whatever a template prints loses its control characters, and is escaped, on the page by the
//! template engine, in Markdown by the filters of [`markdown`].

mod chart;
pub mod figure;
pub mod markdown;
mod published;
mod sections;
pub mod statistics;
pub mod summary;
pub mod terminal;
pub mod units;

mod pictures;
#[cfg(test)]
pub(crate) mod specimen;
#[cfg(test)]
mod tests;

use minijinja::{Environment, State, Value, context, escape_formatter};
use penstock_base::text::{clean, wrap};

use self::{figure::Aspect, sections::RowText, summary::RowView};
use crate::record::{Client, Report};

pub use self::pictures::{Picture, pictures};

const TEMPLATES: [(&str, &str); 5] = [
    ("chart.svg", include_str!("report/templates/chart.svg")),
    (
        "comparison.md",
        include_str!("report/templates/comparison.md"),
    ),
    ("page.html", include_str!("report/templates/page.html")),
    ("picture.svg", include_str!("report/templates/picture.svg")),
    ("report.md", include_str!("report/templates/report.md")),
];
const CHART_STYLE: &str = include_str!("report/templates/chart.css");
const PAGE_STYLE: &str = include_str!("report/templates/page.css");
/// Letters of a version that is shown in a legend.
const VERSION_LETTERS: usize = 24;

/// All of `report` as one HTML page.
pub fn html(report: &Report) -> String {
    render(
        "page.html",
        context! { page_style => PAGE_STYLE, ..context_of(report) },
    )
}

/// All of `report` as one Markdown document.
pub fn markdown(report: &Report) -> String {
    render("report.md", context_of(report))
}

/// Fills the template of this name; a test fills each with reports of every kind.
pub(crate) fn render(name: &str, values: Value) -> String {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.set_auto_escape_callback(|name| match name.ends_with(".md") {
        true => minijinja::AutoEscape::None,
        false => minijinja::AutoEscape::Html,
    });
    environment.set_formatter(|out, state: &State<'_, '_>, value| match value.as_str() {
        Some(text) if !value.is_safe() => escape_formatter(out, state, &clean(text).into()),
        _ => escape_formatter(out, state, value),
    });
    let lines = |text: &str, letters: f64| wrap(text, letters.max(1.0) as usize);
    environment.add_filter("wrapped", lines);
    markdown::add_to(&mut environment);
    for (name, text) in TEMPLATES {
        environment
            .add_template(name, text)
            .expect("it is well formed");
    }
    let template = environment.get_template(name).expect("it is there");
    template.render(values).expect("it asks for what is there")
}

/// What the templates know of a report.
fn context_of(report: &Report) -> Value {
    let ranking = summary::rank(report);
    let views = summary::rows(report);
    let suites = report.tables.iter().map(|table| {
        let rows = table.rows.iter();
        let rows = rows.map(|row| RowText::of(&RowView::new(report, table, row)));
        context! {
            name => table.suite,
            scale => (table.scale != 1.0).then(|| units::scale(table.scale)),
            rows => rows.collect::<Vec<_>>(),
            sections => sections::of(table, &views, ranking.as_ref()),
        }
    });
    let suites: Vec<Value> = suites.collect();
    let nothing = "Nothing could be measured".to_owned();
    let headline = ranking.as_ref().map_or(nothing, summary::Ranking::headline);
    let clients = report.clients.iter().enumerate();
    let clients = clients.map(|(index, client)| {
        let class = chart::class(index);
        context! { class, name => client.name, missing => client.missing, version => version_of(client) }
    });
    let clients: Vec<Value> = clients.collect();
    let missing = report
        .clients
        .iter()
        .filter(|client| client.missing.is_some());
    context! {
        report, headline, suites, clients,
        missing => missing.collect::<Vec<_>>(),
        found => ranking.as_ref().map(|ranking| found(report, ranking)),
        aspects => Aspect::ALL.map(Aspect::name),
        place => place(report),
        conditions => conditions(report),
        day => report.started.split('T').next(),
        style => CHART_STYLE,
    }
}

fn found(report: &Report, ranking: &summary::Ranking<'_>) -> Value {
    let compared = ranking.compared().into_iter().map(|row| {
        let places = Aspect::ALL.map(|aspect| {
            let place = row.place(aspect)?;
            Some(context! { standing => place.standing, verdict => place.verdict(), rival => place.rival })
        });
        context! {
            suite => row.view.table.suite,
            workload => row.view.row.workload,
            profile => row.view.row.profile,
            description => row.view.row.description,
            absence => row.absence,
            places,
        }
    });
    context! {
        subject => ranking.subject,
        index => index_of(report, ranking.subject),
        sentences => ranking.sentences(),
        tallies => ranking.tallies(),
        caution => ranking.caution(),
        behind => ranking.behind(),
        scoreboard => ranking.scoreboard(),
        compared => compared.collect::<Vec<Value>>(),
    }
}

fn index_of(report: &Report, client: &str) -> Option<usize> {
    report.clients.iter().position(|known| known.name == client)
}

/// The memory of the machine of `report`, as the measurements are given.
fn memory(report: &Report) -> String {
    let bytes = report.machine.memory_bytes as f64;
    figure::Figure::PeakMemory.unit_for(bytes).quantity(bytes)
}

/// Where it was measured, in a sentence.
fn place(report: &Report) -> String {
    let machine = &report.machine;
    let shared = match report.endpoint.same_machine {
        true => ", which shares the processors",
        false => "",
    };
    format!(
        "Measured {} with {} × {} and {} of memory, {}, Linux {}, against {}{shared}.",
        report.started,
        machine.processors,
        machine.processor,
        memory(report),
        machine.system,
        machine.kernel,
        report.endpoint.description,
    )
}

fn conditions(report: &Report) -> [(&'static str, String); 5] {
    let (machine, endpoint) = (&report.machine, &report.endpoint);
    let shared = match endpoint.same_machine {
        true => " (shares the machine's processors)",
        false => "",
    };
    [
        ("Begun", report.started.clone()),
        (
            "Processors",
            format!("{} × {}", machine.processors, machine.processor),
        ),
        ("Memory", memory(report)),
        (
            "System",
            format!("{}, Linux {}", machine.system, machine.kernel),
        ),
        ("Endpoint", format!("{}{shared}", endpoint.description)),
    ]
}

/// The version of `client`, as short as it can be said: the word of the text that looks like one, without a `v` before it
/// and without what says from which commit it was built; else the text. Empty when it is not known.
fn version_of(client: &Client) -> String {
    let text = client.version.as_deref().unwrap_or_default().trim();
    let text = text.strip_prefix(&client.name).unwrap_or(text).trim();
    let words = text.split([' ', ',', '(', ')']);
    let mut words = words.map(|word| word.trim_start_matches(['v', 'V']));
    let is_version =
        |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let version = words
        .find(is_version)
        .and_then(|word| word.split('+').next());
    penstock_base::text::truncate(version.unwrap_or(text), VERSION_LETTERS)
}
