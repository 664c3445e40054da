//! Servers whose records no library of TLS would send.

use super::*;

/// What a handshake breaks off for before rustls has an alert to send: a length that cannot be, and half a message
/// before a record of another kind.
#[tokio::test]
async fn a_handshake_of_garbage_is_an_error() {
    let answers: [&[u8]; 3] = [
        &[22, 3, 3, 0, 4, 2, 255, 255, 255],
        &[22, 3, 3, 0, 5, 2, 0, 0, 80, 3, 23, 3, 3, 0, 1, 0],
        &[22, 3, 3, 0, 5, 2, 0, 0, 80, 3, 21, 3, 3, 0, 2, 2, 40],
    ];
    for garbage in answers {
        let (plain, _server) = serve(move |_, mut stream| async move {
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(garbage).await;
            let _ = stream.read(&mut [0; 4096]).await;
        })
        .await;
        let origin = Origin::parse(&format!("https://localhost:{}", plain.port)).expect("valid");
        let error = get(&client(), &Arc::new(origin)).await;
        let error = error.expect_err("garbage");
        assert_eq!(error.kind, ErrorKind::Untrusted, "{error}");
    }
}

/// A server whose answer is refused hears why: `protocol_version` for TLS 1.1.
#[tokio::test]
async fn a_server_hears_why_a_handshake_failed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    let heard = async {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = stream.read(&mut [0; 4096]).await.expect("a hello");
        let mut hello = vec![22, 3, 2, 0, 42, 2, 0, 0, 38, 3, 2];
        hello.extend_from_slice(&[7; 32]);
        hello.extend_from_slice(&[0, 0xc0, 0x13, 0]);
        stream.write_all(&hello).await.expect("it is read");
        let mut alert = Vec::new();
        stream.read_to_end(&mut alert).await.expect("an alert");
        alert
    };
    let origin = Origin::parse(&format!("https://localhost:{port}")).expect("valid");
    let (client, origin) = (client(), Arc::new(origin));
    let (alert, answer) = tokio::join!(heard, get(&client, &origin));
    answer.expect_err("too old");
    assert_eq!(alert, [21, 3, 3, 0, 2, 2, 70]);
}
