//! The simulation beside real sessions that do the same, on the computer on which the costs were measured.

use std::{sync::Arc, time::Duration};

use crate::{
    costs::{Costs, Site},
    database::Server,
    figures::{Latencies, median},
    load::{Kind, Load},
    real::{Ground, Ran},
    simulation::{Found, World},
};

const TIME: Duration = Duration::from_secs(3);
/// Runs that count, of so many at most: those in which others had the least of this computer.
const RUNS: usize = 3;
const RUNS_MAX: usize = 8;
/// Cores that others may have.
const OTHERS: f64 = 0.1;
/// Microseconds of a flush that are CPU of the process which flushes: they are a part of `group`.
const FLUSH_CPU: f64 = 60.0;

/// What is compared, of one run.
#[derive(Debug, Clone, Copy)]
struct Figures([f64; 8]);

const NAMES: [&str; 8] = [
    "op/s",
    "changes/s",
    "groups/s",
    "database cores",
    "create ms",
    "create p99",
    "open ms",
    "open p99",
];

impl Figures {
    fn of_run(ran: &Ran) -> Self {
        let seconds = ran.took.as_secs_f64();
        let quantile = |kind: &str, share| {
            let latencies = ran.done.get(kind);
            latencies.map_or(f64::NAN, |one| one.clone().quantile(share))
        };
        let changes =
            ["create", "close"].map(|kind| ran.done.get(kind).map_or(0, Latencies::count));
        Self([
            ran.operations as f64 / seconds,
            changes.iter().sum::<u64>() as f64 / seconds,
            ran.groups as f64 / seconds,
            ran.database.as_secs_f64() / seconds,
            quantile("create", 0.5),
            quantile("create", 0.99),
            quantile("open", 0.5),
            quantile("open", 0.99),
        ])
    }

    fn of_simulation(found: &Found) -> Self {
        let of = |kind: &str| {
            found
                .latencies
                .get(kind)
                .copied()
                .unwrap_or((f64::NAN, f64::NAN))
        };
        Self([
            found.operations,
            found.changes,
            found.groups - found.refused,
            found.database,
            of("create").0,
            of("create").1,
            of("open").0,
            of("open").1,
        ])
    }
}

/// Compares 1 to 16 machines under several loads. One that is alone in what it does has another one listen.
pub async fn check(server: &Arc<Server>, costs: Costs) {
    for busy in [1, 2, 4, 16] {
        let listeners = usize::from(busy == 1);
        let ground = Ground::new(Arc::clone(server), None, busy + listeners).await;
        for (what, load) in [
            ("16 callers", Load::MIXED),
            (
                "16 callers, 20 ms between",
                Load::MIXED.paced(Duration::from_millis(20)),
            ),
            ("creates, 16 callers", Load::only(Kind::Create, 16)),
        ] {
            let runs = calm_runs(&ground, load, busy).await;
            // The disk is no part of the model.
            let flush = median(runs.iter().map(Ran::flush).collect());
            let costs = Costs {
                flush: (flush - FLUSH_CPU).max(0.0),
                ..costs
            };
            let site = (costs, Site::ONE_COMPUTER);
            let found = World::new(site, load, (busy, listeners), 1).run(TIME);
            let others = runs.iter().map(Ran::cores_of_others).fold(0.0, f64::max);
            println!(
                "{busy} machines, {what}: a flush {flush:.0} us, others had at most {others:.2} cores"
            );
            tell(&runs, Figures::of_simulation(&found));
        }
        ground.close().await;
    }
}

async fn calm_runs(ground: &Ground, load: Load, busy: usize) -> Vec<Ran> {
    let mut runs = Vec::new();
    for _ in 0..RUNS_MAX {
        runs.push(ground.run(load, busy, TIME).await);
        runs.sort_by(|one, other| one.cores_of_others().total_cmp(&other.cores_of_others()));
        if runs
            .get(RUNS - 1)
            .is_some_and(|ran| ran.cores_of_others() <= OTHERS)
        {
            break;
        }
    }
    runs.truncate(RUNS);
    runs
}

fn tell(runs: &[Ran], simulated: Figures) {
    let runs: Vec<_> = runs.iter().map(Figures::of_run).collect();
    for (place, name) in NAMES.into_iter().enumerate() {
        let real: Vec<f64> = runs.iter().map(|run| run.0[place]).collect();
        let lowest = real.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = real.iter().copied().fold(0.0, f64::max);
        let (real, found) = (median(real), simulated.0[place]);
        if !real.is_nan() {
            let off = (found / real - 1.0) * 100.0;
            println!(
                "  {name:16} real {real:10.2} ({lowest:.2} to {highest:.2})  simulated {found:10.2}  {off:+.0} %"
            );
        }
    }
}
