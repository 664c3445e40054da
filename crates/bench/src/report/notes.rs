//! Notes under charts: what failed, what was disturbed, who did not run. A note that holds for all rows of a family is told once.

use crate::report::view::{Outcome, RowView};

/// Each note of `rows` once, with the names of the rows that it is about unless it is about all.
pub(super) fn merged(rows: &[&RowView<'_>]) -> Vec<String> {
    let mut merged: Vec<(String, Vec<&str>)> = Vec::new();
    for row in rows {
        for note in notes(row) {
            match merged.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(&row.row.workload),
                None => merged.push((note, vec![&row.row.workload])),
            }
        }
    }
    let text = |(note, names): (String, Vec<&str>)| match names.len() == rows.len() {
        true => note,
        false => format!("{note} ({})", names.join(", ")),
    };
    merged.into_iter().map(text).collect()
}

fn notes(row: &RowView<'_>) -> Vec<String> {
    let clients = || row.clients.iter();
    let marked = clients().flat_map(|client| {
        let notes = client.notes().into_iter();
        notes.map(|note| format!("† {}: {note}", client.name))
    });
    let failed = clients().filter(|client| matches!(client.outcome(), Outcome::Failed(_)));
    let failed = failed.filter_map(|client| Some(format!("{} {}", client.name, client.absence()?)));
    let idle = clients().filter(|client| client.outcome() == Outcome::NotRun);
    let idle: Vec<&str> = idle.map(|client| client.name).collect();
    let idle = (!idle.is_empty()).then(|| format!("Not run: {}", idle.join(", ")));
    marked.chain(failed).chain(idle).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{specimen, view};

    #[test]
    fn a_note_of_all_rows_is_told_once_and_that_of_one_names_it() {
        let mut report = specimen::report();
        let sample = &mut report.tables[2].rows[1].cells[0].samples[0];
        sample.failure = Some("it broke".to_owned());
        let rows = view::rows(&report);
        let family: Vec<_> = rows
            .iter()
            .filter(|row| row.table.suite == "strmvol")
            .collect();
        let idle = "Not run: mount-s3, s3fs, rclone".to_owned();
        let broken = "† penstock: 1 of 3 runs failed: it broke (random-read-16)".to_owned();
        assert_eq!(merged(&family), [idle, broken]);
        assert_eq!(merged(&family[..1]).len(), 1);
    }
}
