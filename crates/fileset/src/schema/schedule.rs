//! The schedule: what a file system does by itself, how many of each stay, and of which period the last one is.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use jiff::{Timestamp, ToSpan, Zoned, tz::TimeZone};
use penstock_base::FsResult;
use serde::{Deserialize, Serialize};

use super::damaged;

/// The key of [`Schedule`].
pub(crate) const SCHEDULE: &[u8] = b"J";

/// How far the clocks of machines that have one file system may be apart.
const CLOCKS_APART: Duration = Duration::from_secs(60 * 60);

/// What is done once in each period, which begins by UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Job {
    /// A snapshot each hour.
    Hourly,
    /// A snapshot each day.
    Daily,
    /// A snapshot each week, which begins on Monday.
    Weekly,
    /// A snapshot each month.
    Monthly,
    /// A dump of the metadata into the bucket each day.
    Dumps,
}

impl Job {
    /// All there are.
    pub const ALL: [Self; 5] = [
        Self::Hourly,
        Self::Daily,
        Self::Weekly,
        Self::Monthly,
        Self::Dumps,
    ];

    /// What it is called; the names of its snapshots begin with that.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hourly => "hourly",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
            Self::Dumps => "dumps",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|job| job.name() == name)
    }

    /// The period in which a time lies.
    pub(crate) fn period(self, now: SystemTime) -> String {
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::UNIX_EPOCH);
        let now = now.to_zoned(TimeZone::UTC);
        match self {
            Self::Hourly => now.strftime("%Y-%m-%dT%H").to_string(),
            Self::Daily | Self::Dumps => now.strftime("%Y-%m-%d").to_string(),
            Self::Weekly => monday_before(&now).strftime("%Y-%m-%d").to_string(),
            Self::Monthly => now.strftime("%Y-%m").to_string(),
        }
    }

    /// Whether a snapshot of this name is one that this job took.
    pub(crate) fn took(self, snapshot: &str) -> bool {
        let form = match self {
            Self::Hourly => "0000-00-00T00",
            Self::Daily | Self::Weekly => "0000-00-00",
            Self::Monthly => "0000-00",
            Self::Dumps => return false,
        };
        let period = snapshot.strip_prefix(self.name());
        let period = period.and_then(|rest| rest.strip_prefix('-'));
        period.is_some_and(|period| period.replace(|c: char| c.is_ascii_digit(), "0") == form)
    }
}

fn monday_before(day: &Zoned) -> Zoned {
    let since = day.weekday().to_monday_zero_offset();
    day.checked_sub(i64::from(since).days())
        .unwrap_or_else(|_| day.clone())
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// How many of each stay; jobs that are not there are not done.
    pub(crate) keep: BTreeMap<Job, u32>,
    /// The periods of the last ones.
    pub(crate) done: BTreeMap<Job, String>,
}

impl Schedule {
    /// What is to be done.
    pub(crate) fn due(&self, now: SystemTime) -> Vec<Job> {
        let wanted = self.keep.keys().copied();
        wanted.filter(|job| self.is_due(*job, now)).collect()
    }

    /// Whether a job is to be done in the period of a time. The last one may be of a machine whose clock is ahead; one that
    /// is of a later period than such a clock has is of one that was wrong.
    pub(crate) fn is_due(&self, job: Job, now: SystemTime) -> bool {
        let done = self.done.get(&job);
        let is_done =
            |done: &String| (job.period(now)..=job.period(now + CLOCKS_APART)).contains(done);
        self.keep.contains_key(&job) && !done.is_some_and(is_done)
    }

    pub(crate) fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    pub(crate) fn decode(value: &[u8]) -> FsResult<Self> {
        serde_json::from_slice(value).map_err(|_| damaged("the schedule"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SystemTime {
        text.parse::<Timestamp>().unwrap().into()
    }

    #[test]
    fn periods_begin_with_hours_days_mondays_and_months() {
        // A Sunday.
        let before = at("2026-11-29T23:59:59Z");
        let after = at("2026-11-30T00:00:00Z");
        let periods = |now| Job::ALL.map(|job| job.period(now));
        assert_eq!(
            periods(before),
            [
                "2026-11-29T23",
                "2026-11-29",
                "2026-11-23",
                "2026-11",
                "2026-11-29"
            ]
        );
        assert_eq!(
            periods(after),
            [
                "2026-11-30T00",
                "2026-11-30",
                "2026-11-30",
                "2026-11",
                "2026-11-30"
            ]
        );
    }

    #[test]
    fn a_job_knows_its_snapshots_by_their_names() {
        let now = at("2026-11-29T23:59:59Z");
        for job in &Job::ALL[..4] {
            let name = format!("{}-{}", job.name(), job.period(now));
            let who: Vec<_> = Job::ALL.into_iter().filter(|job| job.took(&name)).collect();
            assert_eq!(who, [*job]);
            assert_eq!(Job::named(job.name()), Some(*job));
        }
        for name in [
            "hourly",
            "hourly-",
            "hourly-mine",
            "daily-2026-11-29T23",
            "dumps-2026-11-29",
        ] {
            assert!(!Job::ALL.into_iter().any(|job| job.took(name)), "{name}");
        }
    }

    #[test]
    fn a_job_is_due_once_in_a_period_where_clocks_are_an_hour_apart() {
        let (one, other) = (at("2026-11-29T22:59:50Z"), at("2026-11-29T23:00:10Z"));
        let mut schedule = Schedule::default();
        assert!(schedule.due(one).is_empty());
        schedule.keep.insert(Job::Hourly, 3);
        assert_eq!(schedule.due(one), [Job::Hourly]);
        schedule.done.insert(Job::Hourly, Job::Hourly.period(other));
        assert!(schedule.due(other).is_empty());
        assert!(schedule.due(one).is_empty());
        assert_eq!(schedule.due(at("2026-11-30T00:00:00Z")), [Job::Hourly]);
        // Of a clock that was wrong.
        assert_eq!(schedule.due(at("2026-11-28T22:00:00Z")), [Job::Hourly]);
        assert_eq!(Schedule::decode(&schedule.encode()).unwrap(), schedule);
        assert!(Schedule::decode(b"{").is_err());
    }
}
