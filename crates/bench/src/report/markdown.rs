//! A report as Markdown: what was found, the tables, the conditions.
//!
//! One table for each row of the benchmark, clients down, best first; numbers are medians with their spread, the best of each
//! column is bold. Failed and disturbed runs carry footnotes ([`footnotes`]), missing clients are named above all tables, and
//! what others published stands in a table of its own that says it was measured elsewhere.

pub mod escape;
mod footnotes;

use std::fmt::Write as _;

use self::{
    escape::{code, code_block, plain},
    footnotes::Footnotes,
};
use crate::{
    record::{Published, Report, Table},
    report::{
        figure::{Aspect, Figure},
        ranking, units,
        view::{ClientView, RowView},
    },
};

/// All of `report` as one document.
#[must_use]
pub fn write(report: &Report) -> String {
    let mut out = String::from("# File clients side by side\n");
    out.push_str(&summary(report));
    out.push_str(&missing(report));
    let mut footnotes = Footnotes::default();
    for table in &report.tables {
        out.push_str(&suite(report, table, &mut footnotes));
    }
    out.push_str(&conditions(report));
    out.push_str(&footnotes.definitions());
    out
}

fn summary(report: &Report) -> String {
    let Some(ranking) = ranking::rank(report) else {
        return "\n**Nothing could be measured.**\n".to_owned();
    };
    let mut out = format!("\n**{}.**\n", plain(&ranking.headline()));
    let sentences: Vec<String> = ranking.sentences().iter().map(|it| plain(it)).collect();
    out.push_str(&list("", &sentences));
    let behind = ranking.loss_lines().into_iter().chain(ranking.absences());
    let behind: Vec<String> = behind.map(|line| plain(&line)).collect();
    let title = format!("Where {} is behind:\n", plain(ranking.subject));
    out.push_str(&list(&title, &behind));
    out
}

/// `title` and `items`; nothing when there are none.
fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("- {item}\n")).collect();
    if title.is_empty() {
        format!("\n{items}")
    } else {
        format!("\n{title}\n{items}")
    }
}

fn missing(report: &Report) -> String {
    let clients = report.clients.iter();
    let lines = clients.filter_map(|client| {
        let reason = client.missing.as_ref()?;
        Some(format!("**{}**: {}", plain(&client.name), plain(reason)))
    });
    list("Not measured:\n", &lines.collect::<Vec<_>>())
}

fn suite(report: &Report, table: &Table, footnotes: &mut Footnotes) -> String {
    let mut out = format!("\n## Suite {}\n", plain(&table.suite));
    if table.scale != 1.0 {
        let _ = write!(
            out,
            "\nSizes are {} of those of the source.\n",
            units::scale(table.scale)
        );
    }
    for row in &table.rows {
        let view = RowView::new(report, table, row);
        let _ = write!(out, "\n### {}\n\n{}", plain(&view.title()), sentence(&view));
        out.push_str(&match &row.unavailable {
            Some(reason) => format!(
                "\n*Not available: {}.*\n",
                plain(reason).trim_end_matches('.')
            ),
            None => measured(&view, footnotes) + &published(row.published.as_slice()),
        });
    }
    out
}

fn sentence(view: &RowView<'_>) -> String {
    let repeats = view.repeats().map_or(String::new(), |count| {
        format!(" Runs of each client: {count}.")
    });
    format!(
        "{}.{repeats}\n",
        plain(&view.row.description).trim_end_matches('.')
    )
}

/// The table of what was measured here.
fn measured(view: &RowView<'_>, footnotes: &mut Footnotes) -> String {
    let figures = view.figures();
    let mut head = vec!["client".to_owned()];
    head.extend(figures.iter().map(|figure| heading(view, *figure)));
    let mut lines = vec![head, alignment(figures.len())];
    for client in view.sorted_by(view.figure(Aspect::Speed)) {
        lines.push(line(view, client, &figures, footnotes));
    }
    format!("\n{}", rows(&lines))
}

fn line(
    view: &RowView<'_>,
    client: &ClientView<'_>,
    figures: &[Figure],
    notes: &mut Footnotes,
) -> Vec<String> {
    let marks: String = client.notes().iter().map(|note| notes.mark(note)).collect();
    let mut cells = vec![format!("{}{marks}", plain(client.name))];
    match client.absence() {
        Some(absence) => {
            let (word, reason) = absence.split_once(": ").unwrap_or((&absence, ""));
            let mark = if reason.is_empty() {
                String::new()
            } else {
                notes.mark(reason)
            };
            cells.push(format!("*{}*{mark}", plain(word)));
            cells.resize(figures.len() + 1, String::new());
        }
        None => cells.extend(figures.iter().map(|figure| cell(view, client, *figure))),
    }
    cells
}

fn cell(view: &RowView<'_>, client: &ClientView<'_>, figure: Figure) -> String {
    let Some(summary) = client.summary(figure) else {
        return "–".to_owned();
    };
    let unit = figure.unit_for(view.greatest(figure).unwrap_or(summary.median));
    let number = unit.number(summary.median);
    let number = if view.is_best(client, figure) {
        format!("**{number}**")
    } else {
        number
    };
    format!("{number} {}", units::spread(&summary))
        .trim_end()
        .to_owned()
}

fn heading(view: &RowView<'_>, figure: Figure) -> String {
    let unit = figure.unit_for(view.greatest(figure).unwrap_or(0.0));
    format!("{}, {}", figure.name(), unit.name)
}

fn alignment(figures: usize) -> Vec<String> {
    let mut cells = vec!["---".to_owned()];
    cells.resize(figures + 1, "---:".to_owned());
    cells
}

fn rows(lines: &[Vec<String>]) -> String {
    lines
        .iter()
        .map(|cells| format!("| {} |\n", cells.join(" | ")))
        .collect()
}

/// The table of what others published, as it is printed there.
fn published(published: &[Published]) -> String {
    let mut columns: Vec<&str> = Vec::new();
    for column in published.iter().flat_map(|it| it.figures.keys()) {
        if !columns.contains(&column.as_str()) {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return String::new();
    }
    let mut head = vec!["measured elsewhere".to_owned()];
    head.extend(columns.iter().map(|column| plain(column)));
    head.push("source".to_owned());
    let mut marks = alignment(columns.len());
    marks.push("---".to_owned());
    let mut lines = vec![head, marks];
    for entry in published {
        let figure = |column: &&str| {
            entry
                .figures
                .get(*column)
                .map_or("–".to_owned(), |text| plain(text))
        };
        let cells = std::iter::once(plain(&entry.client)).chain(columns.iter().map(figure));
        lines.push(cells.chain([plain(&entry.source)]).collect());
    }
    format!("\n{}", rows(&lines))
}

fn conditions(report: &Report) -> String {
    let machine = &report.machine;
    let memory = Figure::PeakMemory
        .unit_for(machine.memory_bytes as f64)
        .quantity(machine.memory_bytes as f64);
    let shared = if report.endpoint.same_machine {
        " (shares the machine's processors)"
    } else {
        ""
    };
    let facts = [
        ("begun", plain(&report.started)),
        (
            "processors",
            format!("{} × {}", machine.processors, plain(&machine.processor)),
        ),
        ("memory", memory),
        (
            "system",
            format!(
                "{}, Linux {}",
                plain(&machine.system),
                plain(&machine.kernel)
            ),
        ),
        (
            "endpoint",
            format!("{}{shared}", plain(&report.endpoint.description)),
        ),
    ];
    let mut out = String::from("\n## Conditions\n\n|  |  |\n| --- | --- |\n");
    out.extend(facts.map(|(name, fact)| format!("| {name} | {fact} |\n")));
    out.push_str(METHOD);
    out.push_str(&clients(report));
    out.push_str(&commands(report));
    out
}

const METHOD: &str = "\nEach figure is the median of the runs without failure, ± how far off the median of another such series \
    may be: half of their range, and more where there were fewer than five. The best of each column is bold. A client is \
    first where it differs from every other beyond the noise: ranges that do not overlap and medians further apart than both \
    ± together and than 5 %, or 20 % where one of them ran only once. Amplification is what crossed the network for each byte \
    of payload.\n";

fn clients(report: &Report) -> String {
    let mut out = String::from("\n| client | version | mounted by |\n| --- | --- | --- |\n");
    for client in &report.clients {
        let version = client.version.as_deref().map_or("–".to_owned(), plain);
        let command = if client.missing.is_some() {
            "missing".to_owned()
        } else {
            code(&client.command)
        };
        let _ = writeln!(out, "| {} | {version} | {command} |", plain(&client.name));
    }
    out
}

fn commands(report: &Report) -> String {
    let mut out = String::new();
    for table in &report.tables {
        for row in table.rows.iter().filter(|row| !row.commands.is_empty()) {
            let title = format!("{}, {} · {}", table.suite, row.workload, row.profile);
            let _ = write!(
                out,
                "\n{}:\n\n{}",
                plain(&title),
                code_block(&row.commands.join("\n"))
            );
        }
    }
    out
}

#[cfg(test)]
mod tests;
