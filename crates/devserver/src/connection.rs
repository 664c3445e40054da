//! One connection: requests one after the other, each read, decided on, carried out, answered.

use std::{
    io::{self, BufRead, Read},
    net::TcpStream,
    ops::Range,
    sync::Arc,
    time::Duration,
};

use crate::{
    address::Address,
    admin, clock,
    dialect::Dialect,
    faults::{Decision, Fault},
    http::{
        body::Body,
        request::{Framing, Method, Request},
        response::{Payload, Response},
        secure::{self, Secure},
        wire::Wire,
    },
    operations::{self, Exchange, Operation},
    rate::Pacer,
    refusal::{Code, Trouble},
    send,
    service::{Flow, Service},
    signature,
    store::Content,
    system,
};

/// How long a connection may be silent, and how long a send may take.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Bytes that may wait to be sent to a client on this machine, where no distance has to be
/// filled. Left to itself the kernel lets megabytes wait, and client and server together spend
/// about a third more on them, as the data is no longer near when it is read.
const LOCAL_SEND_BUFFER: usize = 512 << 10;
/// How long the rest of a refused body is read away, so that the client sees the answer.
const LINGER: Duration = Duration::from_secs(2);
/// How much of it.
const LINGER_BYTES: u64 = 256 << 20;

/// Serves a connection until its end.
pub(crate) fn serve(service: &Service, stream: &Arc<TcpStream>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if stream.peer_addr()?.ip().is_loopback() {
        system::set_send_buffer(stream, LOCAL_SEND_BUFFER)?;
    }
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let secure = encipher(service, stream)?;
    let mut connection = Connection {
        service,
        wire: Wire::new(Arc::clone(stream), secure),
        pacer: Pacer::default(),
        sent: Sent::default(),
    };
    while !service.stop.is_set() && connection.exchange()? {}
    connection.wire.take_leave()
}

/// Shakes hands with a client that begins to, where the server has an identity to show.
fn encipher(service: &Service, stream: &Arc<TcpStream>) -> io::Result<Option<Box<Secure>>> {
    let Some(identity) = &service.settings.identity else {
        return Ok(None);
    };
    let mut first = [0];
    if stream.peek(&mut first)? == 0 || first != [secure::FIRST_BYTE] {
        return Ok(None);
    }
    let secure = Secure::accept(stream, identity.config())?;
    service.counters.shook_hands(secure.is_resumed());
    Ok(Some(Box::new(secure)))
}

struct Connection<'a> {
    service: &'a Service,
    wire: Wire,
    pacer: Pacer,
    sent: Sent,
}

/// What was sent without a copy and may not have arrived: its pages must not be used for
/// anything else. The client's next request says that it has, unless it was there before.
#[derive(Default)]
struct Sent(Option<(Content, Range<u64>)>);

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some((content, range)) = self.0.take() {
            content.taint(range);
        }
    }
}

/// What was found out about a request before anything is done.
struct Visit {
    dialect: Dialect,
    address: Result<Address, Code>,
    operation: Operation,
    decision: Decision,
    request_id: String,
}

impl Visit {
    fn of(service: &Service, request: &Request) -> Self {
        let dialect = Dialect::of(request);
        let address = Address::of(request, service.settings.domain.as_deref());
        let (operation, key) = match &address {
            Ok(address) => (
                operations::route(request, dialect, address),
                address.key.as_str(),
            ),
            Err(_) => (Operation::Unknown, ""),
        };
        let decision = service.faults.decide(operation, key);
        if let Some(fault) = &decision.fault {
            tracing::debug!(?fault, operation = operation.name(), "a fault strikes");
            service.counters.struck();
        }
        Self {
            dialect,
            address,
            operation,
            decision,
            request_id: service.data.unique(),
        }
    }
}

/// How the work on a request ended.
enum Outcome {
    /// Answer, and go on if the body was read whole.
    Answer { response: Response, body_read: bool },
    /// Reset the connection.
    Reset,
}

impl Connection<'_> {
    /// Serves one request; false if the connection is at its end.
    fn exchange(&mut self) -> io::Result<bool> {
        let request = match self.read_head() {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return self.malformed(),
            Err(error) => return Err(error),
        };
        self.sent.0 = None;
        if request.path.starts_with(admin::PREFIX) {
            return self.administer(&request);
        }
        let service = self.service;
        let visit = Visit::of(service, &request);
        let _in_flight = service.counters.begin(visit.dialect, visit.operation);
        let outcome = self.work(&request, &visit)?;
        service.stop.pause(visit.decision.latency)?;
        self.conclude(&request, &visit, outcome)
    }

    fn read_head(&mut self) -> io::Result<Option<Request>> {
        loop {
            // Line ends between requests are allowed and mean nothing.
            while matches!(self.wire.buffered(), [b'\r' | b'\n', ..]) {
                self.wire.consume(1);
            }
            let parsed = Request::parse(self.wire.buffered());
            let parsed =
                parsed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.0))?;
            if let Some((request, length)) = parsed {
                self.wire.consume(length);
                return Ok(Some(request));
            }
            if self.wire.receive_more()? == 0 {
                return Ok(None);
            }
        }
    }

    fn malformed(&mut self) -> io::Result<bool> {
        self.service.counters.answered(400);
        let response = Response::new(400).header("Connection", "close");
        self.wire.send(&response.head(&[]))?;
        self.linger();
        Ok(false)
    }

    fn administer(&mut self, request: &Request) -> io::Result<bool> {
        let mut body = Body::new(&mut self.wire, request.framing, request.expects_continue);
        let response = admin::answer(self.service, request, &mut body)?;
        let body_read = body.drain();
        let mut bytes = response.head(&[]);
        if let Payload::Text(text) = &response.payload {
            bytes.extend_from_slice(text);
        }
        self.wire.send(&bytes)?;
        Ok(body_read && request.keep_alive)
    }

    /// Carries a request out.
    fn work(&mut self, request: &Request, visit: &Visit) -> io::Result<Outcome> {
        let service = self.service;
        let mut exchange = Exchange {
            service,
            flow: Flow {
                service,
                pacer: &self.pacer,
            },
            request,
            dialect: visit.dialect,
            operation: visit.operation,
            address: visit.address.clone().unwrap_or_default(),
            body: Body::new(&mut self.wire, request.framing, request.expects_continue),
            flip_received: None,
        };
        let refusal = match perform(&mut exchange, visit) {
            Ok(response) => {
                let body_read = exchange.body.drain();
                return Ok(Outcome::Answer {
                    response,
                    body_read,
                });
            }
            Err(Trouble::Reset) => return Ok(Outcome::Reset),
            Err(Trouble::Broken(error)) => return Err(error),
            Err(Trouble::Refused(refusal)) => refusal,
        };
        tracing::debug!(
            code = refusal.word(),
            operation = visit.operation.name(),
            "refused"
        );
        let is_head = request.method == Method::Head;
        let response = operations::refuse(
            &refusal,
            visit.dialect,
            &request.path,
            &visit.request_id,
            is_head,
        );
        Ok(Outcome::Answer {
            response,
            body_read: exchange.body.drain(),
        })
    }

    /// Answers; false if the connection is at its end.
    fn conclude(&mut self, request: &Request, visit: &Visit, outcome: Outcome) -> io::Result<bool> {
        let (response, body_read) = match outcome {
            Outcome::Answer {
                response,
                body_read,
            } => (response, body_read),
            Outcome::Reset => return self.reset(),
        };
        if visit.decision.fault == Some(Fault::LoseAnswer) {
            return self.reset();
        }
        let keep = body_read && request.keep_alive;
        self.service.counters.answered(response.status);
        let head = response.head(&common_fields(visit, keep));
        let flow = Flow {
            service: self.service,
            pacer: &self.pacer,
        };
        let fault = visit.decision.fault.as_ref().filter(|_| !has_body(request));
        let whole = send::send(flow, &mut self.wire, &response, head, fault);
        if let Payload::Content { content, range } = response.payload {
            self.sent.0 = Some((content, range));
            if !self.wire.buffered().is_empty() {
                self.sent = Sent::default();
            }
        }
        if !body_read {
            self.linger();
        }
        Ok(keep && whole?)
    }

    fn reset(&mut self) -> io::Result<bool> {
        self.wire.reset()?;
        Ok(false)
    }

    /// Ends the connection so that the answer arrives: closing with unread bytes would reset
    /// it, and a reset overtakes what was sent.
    fn linger(&mut self) {
        let prepared = self.wire.end();
        let prepared = prepared.and_then(|()| self.wire.stream().set_read_timeout(Some(LINGER)));
        if prepared.is_ok() {
            // Nothing depends on what comes or whether it does.
            let _ = io::copy(&mut (&mut self.wire).take(LINGER_BYTES), &mut io::sink());
        }
    }
}

fn has_body(request: &Request) -> bool {
    request.framing != Framing::Length(0)
}

/// Applies faults that strike before the work, then does the work.
fn perform(exchange: &mut Exchange<'_>, visit: &Visit) -> Result<Response, Trouble> {
    let with_body = has_body(exchange.request);
    match &visit.decision.fault {
        Some(Fault::Hang { duration_ms }) => {
            exchange
                .service
                .stop
                .pause(Duration::from_millis(*duration_ms))?;
        }
        Some(Fault::Reset { after }) if with_body || *after == 0 => {
            io::copy(&mut (&mut exchange.body).take(*after), &mut io::sink())?;
            return Err(Trouble::Reset);
        }
        Some(Fault::FlipByte { at }) if with_body => exchange.flip_received = Some(*at),
        Some(fault) => {
            if let Some(refusal) = fault.refusal() {
                return Err(refusal.into());
            }
        }
        None => {}
    }
    if let Err(code) = visit.address {
        return Err(code.into());
    }
    signature::verify(exchange)?;
    operations::perform(exchange)
}

/// What every answer carries.
fn common_fields(visit: &Visit, keep: bool) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("Date", httpdate::fmt_http_date(clock::wall_time())),
        ("Server", "penstock-devserver".to_owned()),
    ];
    match visit.dialect {
        Dialect::S3 => {
            fields.push(("x-amz-request-id", visit.request_id.clone()));
            fields.push(("x-amz-id-2", visit.request_id.clone()));
        }
        Dialect::Oss => {
            fields.push(("x-oss-request-id", visit.request_id.clone()));
        }
    }
    if !keep {
        fields.push(("Connection", "close".to_owned()));
    }
    fields
}
