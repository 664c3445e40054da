//! The volume as a whole.

use penstock_vfs::{Inode, Volume};

use crate::support::{Bed, CALLER};

#[tokio::test(start_paused = true)]
async fn statistics_are_large_and_cost_nothing() {
    let bed = Bed::new();
    let statistics = bed.volume.statistics(&CALLER, Inode::ROOT).await.unwrap();
    let bytes = statistics
        .blocks
        .checked_mul(u64::from(statistics.block_size))
        .unwrap();
    assert!(bytes >= 1 << 60 && i64::try_from(bytes).is_ok());
    assert_eq!(statistics.blocks_free, statistics.blocks);
    assert!(statistics.files_free >= 1 << 32);
    assert_eq!(statistics.name_length_max, 255);
    assert_eq!(bed.requests(), "");
}
