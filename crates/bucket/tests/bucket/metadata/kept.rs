//! What a change of metadata must leave as it is.

use penstock_base::MIB;
use penstock_object::{Capabilities, Operation};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_change_of_a_large_object_is_not_made_over_what_others_stored_meanwhile() {
    let limits = Capabilities {
        copy_size_max: 5 * MIB,
        ..MemoryStore::like_s3().capabilities().clone()
    };
    let bed = Bed::over(MemoryStore::with_capabilities(limits), settings());
    bed.put("large", vec![1; 12 * MIB as usize]).await;
    bed.stat("large").await.unwrap();
    let held = bed.probe.hold_late(Operation::CopyPart);
    let (changed, ()) = tokio::join!(change(&bed, "large", mode(0o600)), async {
        clock::sleep(Duration::from_secs(1)).await;
        bed.put("large", "theirs").await;
        held.add_permits(99);
    });
    assert_eq!(changed, Err(FsError::Stale));
    assert_eq!(bed.object("large").await.unwrap(), b"theirs");
    // As the kernel, which looks again by itself. It is made on theirs, which is small.
    let changed = change(&bed, "large", mode(0o600)).await.unwrap();
    assert_eq!((changed.permissions, changed.size), (0o600, 6));
    assert_eq!(bed.object("large").await.unwrap(), b"theirs");
}
