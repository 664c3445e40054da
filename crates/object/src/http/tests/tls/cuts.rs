//! Bodies that end early or not at all, in each way a body can be framed and with both versions.

use rustls::{
    SupportedProtocolVersion,
    version::{TLS12, TLS13},
};
use tokio_rustls::server::TlsStream;

use super::{
    raw_records::{ALERT, CLOSE_NOTIFY, DATA, Sealer, server_config},
    *,
};

/// Half a body, and how its end would be known.
const HALVES: [&str; 3] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nhalf",
    UNTIL_CLOSE,
];

const UNTIL_CLOSE: &str = "HTTP/1.1 200 OK\r\n\r\nhalf";

const INTERNAL_ERROR: [u8; 2] = [2, 80];

/// What a server does behind half a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Says that this is all, and ends the connection.
    Notice,
    /// Ends the connection.
    Silent,
    Reset,
    /// Ends the connection in the middle of a record.
    SilentInRecord,
    ResetInRecord,
    /// Says no more in the middle of a record.
    StallInRecord,
    ChangedRecord,
    NoTls,
    Alert,
    /// Sends nothing that counts, for ever.
    EmptyRecords,
}

const ENDS: [(End, &str); 10] = [
    (End::Notice, ""),
    (End::Silent, "did not end TLS"),
    (End::Reset, ""),
    (End::SilentInRecord, "did not end TLS"),
    (End::ResetInRecord, ""),
    (End::StallInRecord, "no progress for the stall limit"),
    (End::ChangedRecord, "changed on its way"),
    (End::NoTls, "no record of TLS"),
    (End::Alert, "InternalError"),
    (End::EmptyRecords, "without data"),
];

impl End {
    async fn act(self, mut tcp: TcpStream, mut sealer: Sealer) {
        let mut record = sealer.seal(DATA, &[7; 1000]);
        let bytes = match self {
            Self::SilentInRecord | Self::ResetInRecord | Self::StallInRecord => {
                record[..500].to_vec()
            }
            Self::ChangedRecord => {
                record[500] ^= 1;
                record
            }
            Self::NoTls => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            Self::Notice | Self::Silent | Self::Reset | Self::Alert | Self::EmptyRecords => {
                Vec::new()
            }
        };
        let _ = tcp.write_all(&bytes).await;
        match self {
            Self::Silent | Self::SilentInRecord | Self::Notice => {
                let _ = tcp.shutdown().await;
            }
            Self::Reset | Self::ResetInRecord => {
                return tcp.set_zero_linger().expect("a socket");
            }
            _ => {}
        }
        let _ = tcp.read(&mut [0; 16]).await;
    }
}

/// A server that answers each connection once, with `half` and this behind it, and what a client gets.
async fn ask(
    version: &'static SupportedProtocolVersion,
    half: &'static str,
    end: End,
) -> Result<Vec<u8>, HttpError> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let acceptor = TlsAcceptor::from(Arc::new(server_config(version, &made)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let _server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        let stream = acceptor.accept(stream).await.expect("a handshake");
        answer_half(stream, half, end).await;
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let client = client_with(HttpSettings {
        ca_file: Some(file.path().to_owned()),
        stall_timeout: match end {
            End::StallInRecord => Duration::from_millis(300),
            _ => HttpSettings::default().stall_timeout,
        },
        ..HttpSettings::default()
    });
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let origin = Arc::new(origin);
    let got = clock::deadline(Duration::from_secs(20), get(&client, &origin));
    let got = got.await.expect("it ends long before");
    assert_eq!(client.idle_connections(), 0, "{version:?} {end:?}");
    got
}

async fn answer_half(mut stream: TlsStream<TcpStream>, half: &str, end: End) {
    let _ = stream.read(&mut [0; 4096]).await;
    let (mut tcp, session) = stream.into_inner();
    let mut sealer = Sealer::new(session);
    let mut records = sealer.seal(DATA, half.as_bytes());
    match end {
        End::Notice => records.extend(sealer.seal(ALERT, &CLOSE_NOTIFY)),
        End::Alert => records.extend(sealer.seal(ALERT, &INTERNAL_ERROR)),
        End::EmptyRecords => records.extend((0..100).flat_map(|_| sealer.seal(DATA, b""))),
        _ => {}
    }
    let _ = tcp.write_all(&records).await;
    end.act(tcp, sealer).await;
}

/// Of all ends of a body one is whole: where nothing else tells the end, and the server does.
#[tokio::test]
async fn half_a_body_is_never_a_whole_one() {
    for version in [&TLS12, &TLS13] {
        for half in HALVES {
            for (end, why) in ENDS {
                let got = ask(version, half, end).await;
                if (half, end) == (UNTIL_CLOSE, End::Notice) {
                    assert_eq!(got.expect("a whole body"), b"half");
                    continue;
                }
                let error = got.expect_err("half a body");
                let told = format!("{version:?} {end:?} {half}: {error}");
                assert!(error.message.contains(why), "{told}");
                // A reset throws away what was not read yet, so perhaps there was no answer.
                let is_reset = matches!(end, End::Reset | End::ResetInRecord);
                let unanswered = is_reset && error.kind == ErrorKind::Unavailable;
                assert!(unanswered || error.kind == ErrorKind::Interrupted, "{told}");
            }
        }
    }
}

/// What came along with a whole answer and is no ticket ends the connection: another request goes to a new one.
#[tokio::test]
async fn a_connection_on_which_more_came_than_an_answer_is_not_used_again() {
    for version in [&TLS12, &TLS13] {
        for behind in 0..4 {
            check_behind(version, behind).await;
        }
    }
}

async fn check_behind(version: &'static SupportedProtocolVersion, behind: usize) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generated");
    let acceptor = TlsAcceptor::from(Arc::new(server_config(version, &made)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let _server = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.expect("a handshake");
                let _ = stream.read(&mut [0; 4096]).await;
                let (mut tcp, session) = stream.into_inner();
                let mut sealer = Sealer::new(session);
                let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                let mut records = sealer.seal(DATA, ok);
                records.extend(match behind {
                    0 => sealer.seal(ALERT, &CLOSE_NOTIFY),
                    1 => sealer.seal(ALERT, &INTERNAL_ERROR),
                    2 => sealer.seal(DATA, ok),
                    _ => b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
                });
                let _ = tcp.write_all(&records).await;
                let _ = tcp.read(&mut [0; 4096]).await;
            });
        }
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), made.cert.pem()).expect("written");
    let client = client_with(HttpSettings::trusting(file.path()));
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let mut once = request(&Arc::new(origin), "POST");
    once.repeatable = false;
    for _ in 0..2 {
        let response = client.send(&once).await.expect("a new connection");
        let body = response.collect(9).await;
        assert_eq!(body.expect("a body"), b"ok", "{version:?} {behind}");
    }
}
