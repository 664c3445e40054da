//! Machines that have a file system of their own.

use std::time::Duration;

use penstock_base::random;
use penstock_fileset::engine::{DatabaseEngine, Peers};
use tempfile::TempDir;

use crate::{
    database::{Server, Settings, settings as settings_on},
    keys::{count, model},
};

/// Machines that have a file system of their own.
pub struct Machines {
    directories: Vec<TempDir>,
    pub settings: Settings,
}

impl Machines {
    pub async fn new(server: &Server) -> (Self, DatabaseEngine) {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings_on(server, directory.path(), random::number());
        settings.lease = Duration::from_secs(2);
        let first = DatabaseEngine::create(&settings).await.unwrap();
        let directories = vec![directory];
        (
            Self {
                directories,
                settings,
            },
            first,
        )
    }

    pub fn another(&mut self) -> Settings {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = self.settings.clone();
        settings.directory = directory.path().to_owned();
        self.directories.push(directory);
        settings
    }

    pub async fn join(&mut self) -> DatabaseEngine {
        DatabaseEngine::open(&self.another()).await.unwrap()
    }
}

pub async fn check_whole(engine: &DatabaseEngine, expected: u64) {
    engine.catch_up().await.unwrap();
    assert_eq!(count(engine).await, expected);
    assert_eq!(model(engine).await.len() as u64, expected + 1);
}
