use super::*;
use crate::report::specimen;

fn find<'a>(report: &'a Report, title: &str) -> RowView<'a> {
    let mut views = rows(report).into_iter();
    views
        .find(|view| view.title() == title)
        .expect("the specimen has this row")
}

fn client<'v, 'a>(view: &'v RowView<'a>, name: &str) -> &'v ClientView<'a> {
    view.clients
        .iter()
        .find(|client| client.name == name)
        .expect("the client")
}

#[test]
fn a_client_that_always_failed_has_a_reason_and_no_figures() {
    let report = specimen::report();
    let view = find(&report, "read-4 · far");
    let failed = client(&view, "goofys");
    assert!(matches!(failed.outcome(), Outcome::Failed(_)));
    assert_eq!(failed.summary(Figure::Bandwidth), None);
    assert!(failed.absence().expect("a reason").starts_with("failed: "));
    assert!(failed.notes().is_empty());
}

#[test]
fn a_failed_run_among_good_ones_is_noted_and_not_counted() {
    let report = specimen::report();
    let view = find(&report, "read-4 · far");
    let flaky = client(&view, "rclone");
    assert_eq!(flaky.outcome(), Outcome::Measured);
    assert_eq!(
        flaky
            .summary(Figure::Bandwidth)
            .map(|summary| summary.count),
        Some(2)
    );
    assert!(
        flaky.notes()[0].starts_with("1 of 3 runs failed: "),
        "{:?}",
        flaky.notes()
    );
}

#[test]
fn missing_clients_are_not_in_rows_and_unavailable_rows_are_not_shown() {
    let report = specimen::report();
    let all = rows(&report);
    assert!(all.iter().all(|view| view.row.unavailable.is_none()));
    assert!(
        all.iter()
            .all(|view| view.clients.iter().all(|client| client.name != "juicefs"))
    );
}

#[test]
fn best_and_order_follow_the_direction_of_the_figure() {
    let report = specimen::report();
    let view = find(&report, "read-1 · lan");
    assert_eq!(view.sorted_by(Figure::Bandwidth)[0].name, "penstock");
    assert_eq!(view.sorted_by(Figure::PeakMemory)[0].name, "s3fs");
    assert!(view.is_best(client(&view, "s3fs"), Figure::PeakMemory));
    assert!(!view.is_best(client(&view, "penstock"), Figure::PeakMemory));
}

#[test]
fn a_row_shows_what_it_counts() {
    let report = specimen::report();
    assert_eq!(find(&report, "read-1 · lan").counts, Counts::Bytes);
    assert_eq!(
        find(&report, "small-files · lan").counts,
        Counts::Operations
    );
    assert_eq!(find(&report, "list · lan").counts, Counts::Time);
    assert!(
        find(&report, "small-files · lan")
            .figures()
            .contains(&Figure::CpuPerGib)
    );
}

#[test]
fn the_subject_is_the_first_client_that_was_measured() {
    let mut report = specimen::report();
    report.clients.rotate_right(1);
    report.clients[0].missing = Some("not on PATH".to_owned());
    assert_eq!(rank(&report).expect("ranked").subject, "penstock");
}

#[test]
fn losses_are_told_worst_first() {
    let report = specimen::report();
    let ranking = rank(&report).expect("ranked");
    let losses = ranking.losses();
    assert!(!losses.is_empty());
    assert!(losses.iter().all(|(_, place)| place.advantage < 1.0));
    let key = |place: &Place<'_>| (place.aspect, place.advantage);
    assert!(losses.is_sorted_by(|a, b| key(a.1) <= key(b.1)));
    let lines = ranking.behind();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("read-1 · lan: s3fs 3.1× less memory")),
        "{lines:#?}"
    );
}

#[test]
fn other_modes_of_the_same_program_are_no_rivals_unless_they_ran_alone() {
    let mut report = specimen::report();
    let own = report.clients[0].version.clone();
    let mode = report
        .clients
        .iter_mut()
        .find(|client| client.name == "s3fs");
    mode.expect("it is there").version.clone_from(&own);
    let losses = |report: &Report| rank(report).expect("ranked").behind().concat();
    assert!(!losses(&report).contains("s3fs"));
    report.clients.retain(|client| client.version == own);
    assert!(losses(&report).contains("s3fs"));
}

#[test]
fn a_margin_within_the_noise_is_level() {
    let report = specimen::report();
    let ranking = rank(&report).expect("ranked");
    let tally = ranking.tally(Aspect::Speed);
    assert!(tally[1] > 0 && tally[0] > 0, "{tally:?}");
    let sum: usize = ranking
        .rows
        .iter()
        .filter(|row| row.place(Aspect::Speed).is_some())
        .count();
    assert_eq!(tally.iter().sum::<usize>(), sum);
}

#[test]
fn what_was_never_repeated_is_said_once() {
    let mut report = specimen::report();
    assert_eq!(rank(&report).and_then(|ranking| ranking.caution()), None);
    let rows = report.tables.iter_mut().flat_map(|table| &mut table.rows);
    rows.flat_map(|row| &mut row.cells)
        .for_each(|cell| cell.samples.truncate(1));
    let ranking = rank(&report).expect("ranked");
    assert!(
        ranking
            .sentences()
            .iter()
            .any(|line| line.starts_with("Every client ran once"))
    );
    assert!(!ranking.behind().concat().contains("noise unknown"));
}

#[test]
fn nobody_measured_is_no_ranking() {
    assert!(rank(&specimen::empty()).is_none());
}

#[test]
fn a_subject_that_ran_alone_claims_nothing() {
    let mut report = specimen::report();
    report.clients.truncate(1);
    let ranking = rank(&report).expect("ranked");
    assert!(
        ranking.headline().contains("ran alone"),
        "{}",
        ranking.headline()
    );
    assert!(ranking.sentences().is_empty());
}

#[test]
fn the_scoreboard_names_every_client_that_ran() {
    let report = specimen::report();
    let ranking = rank(&report).expect("ranked");
    let board = ranking.scoreboard();
    assert_eq!(board[0].0, "penstock");
    let aspects = ranking.aspects();
    let memory = aspects.iter().position(|it| *it == Aspect::Memory);
    let memory = memory.expect("it was measured");
    assert!(
        board
            .iter()
            .any(|(name, wins)| *name == "s3fs" && wins[memory] > 0)
    );
}

#[test]
fn when_everything_was_stored_is_told_where_it_was_waited_for() {
    let mut report = specimen::report();
    let has_stored = |report: &Report| {
        let ranking = rank(report).expect("ranked");
        let of_rows = rows(report)
            .iter()
            .map(|row| row.has(Figure::Stored))
            .collect();
        let of_rows: Vec<bool> = of_rows;
        (ranking.aspects().contains(&Aspect::Stored), of_rows)
    };
    let (is_told, of_rows) = has_stored(&report);
    assert!(is_told);
    assert_eq!(of_rows.iter().filter(|has| **has).count(), 1);
    let view = rows(&report).pop().expect("the tree");
    let figures = view.figures();
    for figure in [Figure::Duration, Figure::Stored, Figure::BytesPerOperation] {
        assert!(figures.contains(&figure), "{figure:?} is not shown");
    }
    report.tables.pop();
    assert!(!has_stored(&report).0, "an empty column");
}
