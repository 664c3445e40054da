//! What `stat`, `chmod`, `readlink` and `statfs` ask for, and [`save`](crate::save) of an inode.

use penstock_vfs::AttributeChanges;

use super::{Adapter, Answer, Outcome, Reply, Subject};
use crate::protocol::encode;

pub(super) async fn get(adapter: Adapter, subject: Subject) -> Outcome {
    let entry = adapter.volume.attributes(&subject.by, subject.node);
    let entry = entry.await?;
    Ok(Answer::body(|body| {
        encode::attributes_with_lifetime(body, &entry);
    }))
}

pub(super) async fn set(adapter: Adapter, subject: Subject, changes: AttributeChanges) -> Outcome {
    let entry = adapter
        .volume
        .set_attributes(&subject.by, subject.node, changes)
        .await?;
    Ok(Answer::body(|body| {
        encode::attributes_with_lifetime(body, &entry);
    }))
}

pub(super) async fn read_symlink(adapter: Adapter, subject: Subject) -> Outcome {
    let target = adapter.volume.read_symlink(&subject.by, subject.node);
    Ok(Reply::Bytes(target.await?.to_vec()).into())
}

pub(super) async fn statistics(adapter: Adapter, subject: Subject) -> Outcome {
    let statistics = adapter.volume.statistics(&subject.by, subject.node);
    let statistics = statistics.await?;
    Ok(Answer::body(|body| encode::statistics(body, &statistics)))
}

pub(super) async fn save(adapter: Adapter, subject: Subject) -> Outcome {
    adapter.volume.save(&subject.by, subject.node).await?;
    Ok(Answer::body(encode::controlled))
}
