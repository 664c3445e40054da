//! Scheduled snapshots where several machines have the file system.

use std::collections::BTreeMap;

use penstock_fileset::{schedule::Job, snapshots};

use crate::database::on_each_engine;
use crate::ground::{Ground, Machine};

on_each_engine!(several_machines_take_a_scheduled_snapshot_once);

async fn schedule(machine: &Machine, job: Job) {
    let keep = BTreeMap::from([(job, 2)]);
    machine.place.volume.set_schedule(keep).await.unwrap();
}

async fn taken(machine: &Machine) -> Vec<String> {
    machine.catch_up().await;
    let listed = snapshots::list(&*machine.place.engine).await.unwrap();
    listed.into_iter().map(|one| one.name).collect()
}

async fn several_machines_take_a_scheduled_snapshot_once(ground: Ground) {
    let [one, other] = ground.two().await;
    // Whoever is told looks after all of them.
    for (count, (machine, job)) in [
        (&one, Job::Monthly),
        (&other, Job::Weekly),
        (&one, Job::Daily),
    ]
    .into_iter()
    .enumerate()
    {
        schedule(machine, job).await;
        let place = &machine.place;
        place
            .until(|| async { taken(machine).await.len() > count })
            .await;
    }
    for machine in [&one, &other] {
        let there = taken(machine).await;
        let begin = ["monthly-", "weekly-", "daily-"];
        assert!(
            there.len() == 3
                && there
                    .iter()
                    .zip(begin)
                    .all(|(name, begin)| name.starts_with(begin)),
            "{there:?}"
        );
    }
}
