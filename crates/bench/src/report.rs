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
//! template engine, in Markdown by three filters.

mod chart;
pub(crate) mod figure;
mod published;
mod sections;
pub(crate) mod statistics;
pub(crate) mod summary;
pub mod terminal;
pub(crate) mod units;

mod pictures;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::specimen;

use std::sync::Arc;

use minijinja::{Environment, State, Value, context, escape_formatter};
use penstock_base::{
    Mutex,
    text::{clean, wrap},
};

use self::{
    figure::{Aspect, Figure},
    sections::RowText,
    summary::RowView,
};
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
    let values = context! { page_style => PAGE_STYLE, ..context_of(report) };
    render("page.html", values)
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
    add_markdown(&mut environment);
    for (name, text) in TEMPLATES {
        let added = environment.add_template(name, text);
        added.expect("it is well formed");
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
            sections => sections::of(table, &views),
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
    let missing = report.clients.iter();
    let missing = missing.filter(|client| client.missing.is_some());
    context! {
        report, headline, suites, clients,
        missing => missing.collect::<Vec<_>>(),
        found => ranking.as_ref().map(|ranking| found(report, ranking)),
        aspects => ranking.as_ref().map(aspect_names),
        place => place(report),
        conditions => conditions(report),
        day => report.started.split('T').next(),
        style => CHART_STYLE,
    }
}

fn aspect_names(ranking: &summary::Ranking<'_>) -> Vec<&'static str> {
    ranking.aspects().into_iter().map(Aspect::name).collect()
}

fn found(report: &Report, ranking: &summary::Ranking<'_>) -> Value {
    let aspects = ranking.aspects();
    let compared = ranking.compared().into_iter().map(|row| {
        let places = aspects.iter().map(|aspect| {
            let place = row.place(*aspect)?;
            Some(context! { standing => place.standing, verdict => place.verdict(), rival => place.rival })
        });
        context! {
            suite => row.view.table.suite,
            workload => row.view.row.workload,
            profile => row.view.row.profile,
            description => row.view.row.description,
            absence => row.absence,
            places => places.collect::<Vec<_>>(),
        }
    });
    context! {
        subject => ranking.subject,
        index => index_of(report, ranking.subject),
        sentences => ranking.sentences(),
        behind => ranking.behind(),
        scoreboard => ranking.scoreboard(),
        compared => compared.collect::<Vec<Value>>(),
    }
}

fn index_of(report: &Report, client: &str) -> Option<usize> {
    report.clients.iter().position(|known| known.name == client)
}

/// Where it was measured, in a sentence.
fn place(report: &Report) -> String {
    let [begun, processors, memory, system, endpoint] = conditions(report).map(|(_, fact)| fact);
    format!(
        "Measured {begun} with {processors} and {memory} of memory, {system}, against {endpoint}."
    )
}

fn conditions(report: &Report) -> [(&'static str, String); 5] {
    let (machine, endpoint) = (&report.machine, &report.endpoint);
    let bytes = machine.memory_bytes as f64;
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
        ("Memory", Figure::PeakMemory.unit_for(bytes).quantity(bytes)),
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

/// Gives the templates of `environment` their filters and footnotes.
fn add_markdown(environment: &mut Environment<'_>) {
    environment.add_filter("plain", |text: &str| plain(text));
    environment.add_filter("sentence", |text: &str| {
        format!("{}.", text.trim_end_matches('.'))
    });
    environment.add_filter("code", |text: &str| code(text));
    environment.add_filter("code_block", |lines: Vec<String>| {
        Value::from_safe_string(code_block(&lines))
    });
    let notes: Arc<Mutex<Vec<String>>> = Arc::default();
    let known = Arc::clone(&notes);
    environment.add_function("footnote", move |note: String| footnote(&known, note));
    environment.add_function("footnotes", move || notes.lock().clone());
}

/// The mark of `note` in the text; the same text has one number.
fn footnote(notes: &Mutex<Vec<String>>, note: String) -> String {
    let mut notes = notes.lock();
    let index = notes.iter().position(|known| *known == note);
    let index = index.unwrap_or_else(|| {
        notes.push(note);
        notes.len() - 1
    });
    format!("[^{}]", index + 1)
}

/// `text` on one line with every character escaped that Markdown, its tables or HTML in it would take for markup.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// `text` as code within a line: fenced by more backticks than it holds, pipes escaped for tables.
fn code(text: &str) -> String {
    let text = clean(text).replace('|', "\\|");
    let fence = fence(&text, 1);
    format!("{fence} {text} {fence}")
}

/// `lines` as a block of code.
fn code_block(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    let text = lines.join("\n");
    let fence = fence(&text, 3);
    format!("{fence}sh\n{text}\n{fence}")
}

/// One backtick more than the longest run of them in `text`, and at least `least`.
fn fence(text: &str, least: usize) -> String {
    let runs = text.split(|c| c != '`').map(str::len);
    "`".repeat(runs.max().map_or(least, |longest| least.max(longest + 1)))
}
