//! HEAD and GET.

use super::{
    Dialect, Draft, RestStore,
    checksum::SummingSink,
    describe::{delivered, read_info},
    plan::is_not_understood,
};
use crate::{
    BodySink, ByteRange, Checksum, ChecksumKind, ErrorKind, GetOptions, Got, Key, ObjectError,
    ObjectInfo, ObjectResult, Operation,
    http::{HttpError, Response},
};

/// Refusals in a row after which a store is asked in another way.
const REFUSALS_BELIEVED: usize = 2;

impl<D: Dialect> RestStore<D> {
    pub(super) async fn head(&self, key: &Key) -> ObjectResult<ObjectInfo> {
        let draft = Draft::new(Operation::Head, "HEAD").about(key);
        let (draft, response) = self.send_read(draft).await?;
        let size = response.headers.number("content-length");
        let size = size.ok_or_else(|| {
            draft.error(
                ErrorKind::Protocol,
                "the store does not tell the object's size",
            )
        })?;
        Ok(read_info(&self.dialect, &response.headers, size))
    }

    pub(super) async fn get(
        &self,
        key: &Key,
        options: &GetOptions,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let draft = self.draft_get(key, options);
        if options.range.as_ref().is_some_and(ByteRange::is_empty) {
            return Err(draft.error(ErrorKind::InvalidRange, "no bytes were asked for"));
        }
        let (draft, response) = self.send_read(draft).await?;
        self.receive(&draft, options, response, sink).await
    }

    /// Sends a read, prepared in the best way that the store understands. One refusal proves nothing: that
    /// of a HEAD has no words, and may be of something that passes.
    async fn send_read(&self, draft: Draft) -> ObjectResult<(Draft, Response)> {
        let [first, second] = *self.dialect.ways_to_read() else {
            let prepared = self.dialect.ways_to_read().contains(&true);
            return self.send_read_as(draft, prepared).await;
        };
        for _ in 0..REFUSALS_BELIEVED {
            match self.send_read_as(draft.clone(), first).await {
                Err(error) if is_not_understood(&error) => {}
                sent => return sent,
            }
        }
        self.send_read_as(draft, second).await
    }

    async fn send_read_as(
        &self,
        mut draft: Draft,
        prepared: bool,
    ) -> ObjectResult<(Draft, Response)> {
        if prepared {
            self.dialect.prepare_read(&mut draft.headers);
        }
        let sent = self.send(&draft).await;
        let is_missing = |error: &ObjectError| error.kind == ErrorKind::NotFound;
        if sent.as_ref().err().is_none_or(is_missing) {
            self.dialect.settle_read(prepared);
        }
        sent.map(|response| (draft, response))
    }

    fn draft_get(&self, key: &Key, options: &GetOptions) -> Draft {
        let mut draft = Draft::new(Operation::Get, "GET").about(key);
        if let Some(range) = &options.range {
            let text = format!("bytes={}-{}", range.start, range.end.saturating_sub(1));
            draft.headers.push("range", text);
        }
        if let Some(tag) = &options.if_match {
            draft.headers.push("if-match", format!("\"{tag}\""));
        }
        draft
    }

    async fn receive(
        &self,
        draft: &Draft,
        options: &GetOptions,
        mut response: Response,
        sink: &mut dyn BodySink,
    ) -> ObjectResult<Got> {
        let (range, size) = delivered(&response, options.range.as_ref())
            .map_err(|message| draft.error(ErrorKind::Protocol, message))?;
        let info = read_info(&self.dialect, &response.headers, size);
        let mut got = Got { info, range };
        sink.begin(&got);
        let length = got.range.end - got.range.start;
        let expected = got.info.checksum.filter(|_| length == size);
        let received = match expected {
            Some(checksum) => {
                self.receive_sum(&mut response, sink, length, checksum)
                    .await
            }
            None => receive_plain(&mut response, sink, length).await,
        };
        let received = received.map_err(|error| draft.error(error.kind, error.message))?;
        got.range.end = got.range.start + received;
        Ok(got)
    }

    /// Receives a whole object and compares its checksum.
    async fn receive_sum(
        &self,
        response: &mut Response,
        sink: &mut dyn BodySink,
        length: u64,
        expected: Checksum,
    ) -> Result<u64, HttpError> {
        let (received, sum) = receive_summing(response, sink, length, expected.kind()).await?;
        if received < length {
            return Ok(received);
        }
        if sum != Some(expected) {
            self.metrics.mismatched.increment();
            let message = "what arrived does not match the object's checksum";
            return Err(HttpError::new(ErrorKind::ChecksumMismatch, message));
        }
        self.metrics.verified.increment();
        Ok(received)
    }
}

/// Receives a body as [`receive_plain`] does; with its sum, which the sink may make itself.
async fn receive_summing(
    response: &mut Response,
    sink: &mut dyn BodySink,
    length: u64,
    kind: ChecksumKind,
) -> Result<(u64, Option<Checksum>), HttpError> {
    if sink.summed().is_some_and(|sum| sum.kind() == kind) {
        let received = receive_plain(response, sink, length).await?;
        return Ok((received, sink.summed()));
    }
    let mut summing = SummingSink::new(sink, kind);
    let received = receive_plain(response, &mut summing, length).await?;
    Ok((received, Some(summing.checksum())))
}

/// Receives `length` bytes, or fewer only if the sink is full before.
async fn receive_plain(
    response: &mut Response,
    sink: &mut dyn BodySink,
    length: u64,
) -> Result<u64, HttpError> {
    let received = response.receive(sink, length).await?;
    if received.complete && received.bytes < length {
        let bytes = received.bytes;
        return Err(HttpError::cut(format!("{bytes} of {length} bytes came")));
    }
    Ok(received.bytes)
}
