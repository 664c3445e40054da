//! Measures what the simulation takes for granted: what trips cost the database, the machines and the wire.
//!
//! Each row is some runs of one load; cells are the lowest and the median of them. What a part costs is what one more of it
//! adds: an operation to a group, a session that listens or waits to the others.

use std::{sync::Arc, time::Duration};

use crate::{
    database::Server,
    figures::median,
    load::{Kind, Load},
    real::{Ground, Ran, bytes::Carried},
};

/// How long each run takes, and how many there are of each.
const TIME: Duration = Duration::from_secs(2);
const RUNS: usize = 3;

/// The columns of a row, and what of a run each shows.
type Column = (&'static str, fn(&Ran) -> f64);

const COLUMNS: [Column; 11] = [
    ("op/s", |ran| ran.operations as f64 / ran.took.as_secs_f64()),
    ("groups/s", |ran| ran.groups as f64 / ran.took.as_secs_f64()),
    ("of a group", |ran| {
        ran.operations as f64 / ran.groups.max(1) as f64
    }),
    ("database us/op", |ran| each(ran.database, ran.operations)),
    ("us/group", |ran| each(ran.database, ran.groups)),
    ("machines us/op", |ran| each(ran.clients, ran.operations)),
    ("us/group", |ran| each(ran.clients, ran.groups)),
    ("flush us", |ran| ran.flush()),
    ("median us", |ran| quantile(ran, 0.5)),
    ("p90 us", |ran| quantile(ran, 0.9)),
    ("cores of others", Ran::cores_of_others),
];

/// Microseconds of one among so many; nothing where there are none.
fn each(time: Duration, count: u64) -> f64 {
    match count < 100 {
        true => f64::NAN,
        false => time.as_secs_f64() * 1e6 / count as f64,
    }
}

fn quantile(ran: &Ran, share: f64) -> f64 {
    let latencies = ran.done.values().next();
    latencies.map_or(f64::NAN, |one| one.clone().quantile(share) * 1e3)
}

fn cell(numbers: Vec<f64>) -> String {
    let lowest = numbers.iter().copied().fold(f64::INFINITY, f64::min);
    let digits = usize::from(lowest < 100.0);
    match numbers.iter().any(|number| number.is_nan()) {
        true => String::new(),
        false => format!("{lowest:.digits$}; {:.digits$}", median(numbers)),
    }
}

fn head() {
    let names: Vec<_> = COLUMNS.iter().map(|(name, _)| *name).collect();
    println!("| load | {} |", names.join(" | "));
}

async fn row(what: &str, ground: &Ground, load: Load, busy: usize) {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(ground.run(load, busy, TIME).await);
    }
    let cells = COLUMNS
        .iter()
        .map(|(_, of)| cell(runs.iter().map(of).collect()));
    println!("| {what} | {} |", cells.collect::<Vec<_>>().join(" | "));
}

/// Tells all costs.
pub async fn measure(server: &Arc<Server>) {
    head();
    trips(server).await;
    waiting(server).await;
    carried(server).await;
}

/// Tells what trips cost one machine beside others that listen.
async fn trips(server: &Arc<Server>) {
    let ground = Ground::new(Arc::clone(server), None, 2).await;
    for (what, kind) in [
        ("catch up", Kind::Open),
        ("two pages", Kind::Unknown),
        ("known", Kind::Stat),
    ] {
        for callers in [1, 16] {
            let load = Load::only(kind, callers);
            row(&format!("{what}, {callers} callers"), &ground, load, 1).await;
        }
    }
    for kind in [Kind::Create, Kind::Close] {
        for callers in [1, 4, 16, 64] {
            let load = Load::only(kind, callers);
            row(&format!("{kind:?}, {callers} callers"), &ground, load, 1).await;
        }
    }
    ground.close().await;
    for listeners in [1, 7, 15] {
        let ground = Ground::new(Arc::clone(server), None, 1 + listeners).await;
        let load = Load::only(Kind::Create, 64);
        row(
            &format!("create, 64 callers, {listeners} listen"),
            &ground,
            load,
            1,
        )
        .await;
        ground.close().await;
    }
}

/// Tells what groups cost that wait for others.
pub async fn waiting(server: &Arc<Server>) {
    for (busy, all_callers) in [
        (2, [1, 8].as_slice()),
        (4, &[1, 8, 32]),
        (16, &[1, 8, 32]),
        (48, &[1, 8]),
    ] {
        let ground = Ground::new(Arc::clone(server), None, busy).await;
        for callers in all_callers {
            let load = Load::only(Kind::Create, *callers);
            let what = format!("create, {callers} callers on each of {busy}");
            row(&what, &ground, load, busy).await;
        }
        ground.close().await;
    }
}

/// Tells bytes.
async fn carried(server: &Arc<Server>) {
    let (carried, port) = Carried::before(server.port).await;
    let ground = Ground::new(Arc::clone(server), Some(port), 2).await;
    println!("| load | bytes to the database, an op | from it | of a group | to it | from it |");
    for (what, load) in [
        ("catch up", Load::only(Kind::Open, 4)),
        ("two pages", Load::only(Kind::Unknown, 4)),
        ("create, 1 caller", Load::only(Kind::Create, 1)),
        ("create, 16 callers", Load::only(Kind::Create, 16)),
        ("create, 64 callers", Load::only(Kind::Create, 64)),
        ("close, 16 callers", Load::only(Kind::Close, 16)),
    ] {
        let before = carried.so_far();
        let ran = ground.run(load, 1, TIME).await;
        let after = carried.so_far();
        let per = |bytes: u64, count: u64| bytes as f64 / count.max(1) as f64;
        println!(
            "| {what} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} |",
            per(after.0 - before.0, ran.operations),
            per(after.1 - before.1, ran.operations),
            per(ran.operations, ran.groups),
            per(after.0 - before.0, ran.groups),
            per(after.1 - before.1, ran.groups),
        );
    }
    ground.close().await;
}
