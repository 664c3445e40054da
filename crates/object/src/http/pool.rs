//! Connections that nobody uses at the moment.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use penstock_base::{Mutex, clock};

use super::{HttpSettings, Origin, connection::Connection};

/// Idle connections, the last used first: it is the least likely to have been closed, and the
/// others may grow old and go.
#[derive(Debug)]
pub(super) struct Pool {
    idle_max: usize,
    age_max: Duration,
    life_max: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: HashMap<Arc<Origin>, Vec<Connection>>,
    sweeping: bool,
}

impl Pool {
    pub(super) fn new(settings: &HttpSettings) -> Arc<Self> {
        Arc::new(Self {
            idle_max: settings.idle_connections_max,
            age_max: settings.idle_age_max,
            life_max: settings.connection_age_max,
            state: Mutex::default(),
        })
    }

    /// A connection that was alive when it was last looked at.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut state = self.state.lock();
        let idle = state.idle.get_mut(origin)?;
        while let Some(mut connection) = idle.pop() {
            if self.is_fresh(&connection) && !connection.stream.is_dead() {
                return Some(connection);
            }
        }
        None
    }

    /// Whether a connection may be used once more.
    fn is_fresh(&self, connection: &Connection) -> bool {
        let is_young = connection.opened.elapsed() < self.life_max;
        is_young && connection.idle_since.elapsed() < self.age_max
    }

    /// Keeps a connection whose last exchange ended cleanly, unless it is old.
    pub(super) fn put(self: &Arc<Self>, mut connection: Connection) {
        connection.idle_since = clock::now();
        if !self.is_fresh(&connection) {
            return;
        }
        let mut state = self.state.lock();
        let idle = state
            .idle
            .entry(Arc::clone(&connection.origin))
            .or_default();
        if idle.len() >= self.idle_max {
            idle.remove(0);
        }
        idle.push(connection);
        if !std::mem::replace(&mut state.sweeping, true) {
            tokio::spawn(sweep(Arc::downgrade(self), self.age_max));
        }
    }

    /// Closes what is idle towards `origin`, since one of them turned out to be dead.
    pub(super) fn clear(&self, origin: &Origin) {
        self.state.lock().idle.remove(origin);
    }

    /// Connections that are idle now.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.state.lock().idle.values().map(Vec::len).sum()
    }

    /// Closes what is too old; tells whether anything is left.
    fn close_old(&self) -> bool {
        let mut state = self.state.lock();
        for idle in state.idle.values_mut() {
            idle.retain(|connection| self.is_fresh(connection));
        }
        state.idle.retain(|_, idle| !idle.is_empty());
        state.sweeping = !state.idle.is_empty();
        state.sweeping
    }
}

/// Closes old connections of a pool that nobody asks any more, as long as it has some.
async fn sweep(pool: Weak<Pool>, pause: Duration) {
    loop {
        clock::sleep(pause).await;
        let busy = pool.upgrade().is_some_and(|pool| pool.close_old());
        if !busy {
            return;
        }
    }
}
