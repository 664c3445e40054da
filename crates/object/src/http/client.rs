//! Sending requests over pooled connections.

use std::sync::Arc;

use penstock_base::metrics::{Counter, Registry, table};

use super::{
    HttpError, HttpSettings, Origin, Patience, Request, Response, connect::Connector,
    connection::Connection, pool::Pool, tls::TlsReport,
};

/// What a client counts.
#[derive(Debug, Clone)]
pub(crate) struct ClientMetrics {
    opened: Arc<Counter>,
    reused: Arc<Counter>,
    replaced: Arc<Counter>,
}

impl ClientMetrics {
    /// Registers the counters.
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |metric| registry.counter(metric, &[]);
        Self {
            opened: counter(&table::HTTP_CONNECTIONS_OPENED),
            reused: counter(&table::HTTP_CONNECTIONS_REUSED),
            replaced: counter(&table::HTTP_CONNECTIONS_REPLACED),
        }
    }
}

/// An HTTP client. Shared by reference; it has no per-request state.
#[derive(Debug)]
pub(crate) struct Client {
    settings: Arc<HttpSettings>,
    connector: Connector,
    pool: Arc<Pool>,
    metrics: ClientMetrics,
}

impl Client {
    pub(crate) fn new(settings: HttpSettings, metrics: ClientMetrics) -> Self {
        let settings = Arc::new(settings);
        Self {
            connector: Connector::new(Arc::clone(&settings)),
            pool: Pool::new(&settings),
            settings,
            metrics,
        }
    }

    /// Fails early when requests to `origin` can never work.
    pub(crate) fn prepare(&self, origin: &Origin) -> Result<(), HttpError> {
        if origin.secure {
            self.connector.prepare_tls()?;
        }
        Ok(())
    }

    /// Shakes hands with an origin that speaks TLS, to tell what comes of it.
    pub(crate) async fn report_tls(&self, origin: &Origin) -> Result<TlsReport, HttpError> {
        self.connector.report_tls(origin).await
    }

    /// Sends a request and returns when the head of its response has arrived.
    ///
    /// A pooled connection that breaks before any byte of the response is replaced once by a
    /// new one, if the request may be repeated. Dropping the future closes the connection.
    pub(crate) async fn send(&self, request: &Request) -> Result<Response, HttpError> {
        if let Some(connection) = self.pool.take(&request.origin) {
            self.metrics.reused.increment();
            match self.exchange(connection, request).await {
                Err(error) if error.unanswered => {
                    self.pool.clear(&request.origin);
                    if !request.repeatable {
                        return Err(error);
                    }
                    self.metrics.replaced.increment();
                }
                outcome => return outcome,
            }
        }
        let connection = self.connector.connect(&request.origin).await?;
        self.metrics.opened.increment();
        self.exchange(connection, request).await
    }

    /// Closes the idle connections to an origin.
    #[cfg(test)]
    pub(super) fn forget_idle(&self, origin: &Origin) {
        self.pool.clear(origin);
    }

    /// Connections that are idle now.
    #[cfg(test)]
    pub(super) fn idle_connections(&self) -> usize {
        self.pool.idle()
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        request: &Request,
    ) -> Result<Response, HttpError> {
        let settings = &*self.settings;
        let head = request.head(&settings.user_agent, settings.proxy.is_some());
        let stall_timeout = settings.stall_timeout;
        connection.send(&head, &request.body, stall_timeout).await?;
        let patience = match request.patience {
            Patience::Usual => settings.first_byte_timeout,
            Patience::Long => settings.long_answer_timeout,
        };
        let answer = connection.read_head(patience).await?;
        let pool = Arc::clone(&self.pool);
        Response::new(request.method, answer, connection, pool, stall_timeout)
    }
}
