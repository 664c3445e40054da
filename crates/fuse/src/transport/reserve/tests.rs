//! Tests of what becomes of WRITEs when memory is short.

use super::*;
use penstock_base::MIB;

/// What is left for WRITEs beside one thread's block: four in hand and one more, and 32 short ones.
const TOTAL: u64 = 8 * MIB;

fn new_reserve() -> ReceiveReserve {
    let pool = BufferPool::new(MemoryBudget::new(TOTAL));
    ReceiveReserve::new(&pool, 1, &Registry::new()).expect("room")
}

fn reserve() -> Arc<ReceiveReserve> {
    Arc::new(new_reserve())
}

fn with_disk() -> Arc<ReceiveReserve> {
    let reserve = new_reserve().spilling_to(&std::env::temp_dir());
    Arc::new(reserve.expect("a file"))
}

fn admit(reserve: &Arc<ReceiveReserve>, length: usize) -> (usize, WriteMemory) {
    match reserve.admit(length, WriteOrigin::Program) {
        Admitted::InMemory { length, memory } => (length, memory),
        Admitted::OnDisk => panic!("a program's WRITE is shortened"),
    }
}

fn admit_many(
    reserve: &Arc<ReceiveReserve>,
    count: usize,
    length: usize,
) -> Vec<(usize, WriteMemory)> {
    (0..count).map(|_| admit(reserve, length)).collect()
}

#[tokio::test]
async fn writes_are_shortened_and_never_waited_for() {
    let reserve = reserve();
    let whole = admit_many(&reserve, 5, BLOCK_SIZE);
    assert!(whole.iter().all(|(length, _)| *length == BLOCK_SIZE));
    let short = admit_many(&reserve, 32, BLOCK_SIZE);
    assert!(short.iter().all(|(length, _)| *length == SHORT_WRITE));
    let tiny = admit_many(&reserve, 1000, BLOCK_SIZE);
    assert!(tiny.iter().all(|(length, _)| *length == TINY_WRITE));
    drop(whole);
    assert_eq!(admit(&reserve, BLOCK_SIZE).0, BLOCK_SIZE);
}

#[tokio::test]
async fn small_writes_cost_what_they_hold() {
    let many = admit_many(&reserve(), 1000, 4096);
    assert!(many.iter().all(|(length, _)| *length == 4096));
}

#[tokio::test(start_paused = true)]
async fn what_is_owed_is_paid_when_memory_returns_or_not_at_all() {
    let reserve = reserve();
    let mut all = admit_many(&reserve, 37, BLOCK_SIZE);
    let late = admit(&reserve, BLOCK_SIZE).1.paid().await;
    assert_eq!(late.err(), Some(FsError::OutOfMemory));
    let owed = admit(&reserve, BLOCK_SIZE).1.paid();
    all.pop();
    let memory = owed.await.expect("a short one is done");
    assert_eq!(memory.bytes(), SHORT_WRITE as u64);
}

#[tokio::test]
async fn what_finds_no_memory_waits_whole_on_the_disk() {
    for origin in [WriteOrigin::Program, WriteOrigin::PageCache] {
        let reserve = with_disk();
        let mut held = admit_many(&reserve, 4, BLOCK_SIZE);
        held.extend(admit_many(&reserve, 31, SHORT_WRITE));
        let small = reserve.admit(SHORT_WRITE, origin);
        assert!(matches!(
            small,
            Admitted::InMemory {
                length: SHORT_WRITE,
                ..
            }
        ));
        for length in [BLOCK_SIZE, SHORT_WRITE, 1] {
            assert!(matches!(reserve.admit(length, origin), Admitted::OnDisk));
        }
        let bytes: Vec<_> = (0..BLOCK_SIZE).map(|at| (at / 7) as u8).collect();
        let waiting = tokio::spawn(reserve.spill(&bytes, origin).paid());
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "there is no memory");
        held.clear();
        let (taken, memory) = waiting.await.expect("no panic").expect("memory came back");
        assert!(taken == bytes);
        assert!(memory.is_some_and(|memory| memory.bytes() == BLOCK_SIZE as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_gets_memory_though_many_writes_wait_on_the_disk() {
    let reserve = with_disk();
    let held = admit_many(&reserve, 4, BLOCK_SIZE);
    let waiting: Vec<_> = (0..100u8)
        .map(|number| {
            let spilled = reserve.spill(&vec![number; BLOCK_SIZE], WriteOrigin::PageCache);
            tokio::spawn(spilled.paid())
        })
        .collect();
    clock::sleep(Duration::from_secs(1)).await;
    let budget = reserve.pool.budget();
    let read = clock::deadline(Duration::from_millis(1), budget.reserve(BLOCK_SIZE as u64)).await;
    read.expect("at once").expect("memory");
    drop(held);
    for (number, waited) in waiting.into_iter().enumerate() {
        let (bytes, _) = waited.await.expect("no panic").expect("memory came back");
        assert!(bytes.iter().all(|byte| usize::from(*byte) == number));
    }
}

#[tokio::test]
async fn where_the_disk_is_full_a_write_of_a_program_is_shortened() {
    let reserve = with_disk();
    let mut held = vec![reserve.spill(b"x", WriteOrigin::PageCache)];
    while matches!(held.last(), Some(WriteData::Spilled(..))) {
        held.push(reserve.spill(b"x", WriteOrigin::PageCache));
    }
    let short = reserve.spill(&[7; BLOCK_SIZE], WriteOrigin::Program);
    let (bytes, _) = short.paid().await.expect("there is memory for it");
    assert_eq!(bytes[..], [7; SHORT_WRITE]);
    let direct = reserve.spill(&[7; BLOCK_SIZE], WriteOrigin::Direct);
    assert!(direct.paid().await.is_err(), "a short one would fail, too");
}

/// The kernel sends so many at once and no more.
#[tokio::test]
async fn what_is_held_for_the_page_cache_is_there_however_many_programs_write() {
    let reserve = with_disk();
    let programs: Vec<_> = (0..5000)
        .map(|_| reserve.spill(b"x", WriteOrigin::Program))
        .collect();
    assert!(
        matches!(programs.last(), Some(WriteData::Held { .. })),
        "no place"
    );
    let spill = reserve.spill.as_ref().expect("there is a disk");
    let late: Vec<_> = (0..spill.certain().unwrap_or(0))
        .map(|_| reserve.spill(b"x", WriteOrigin::PageCache))
        .collect();
    assert!(
        late.iter()
            .all(|late| matches!(late, WriteData::Spilled(..)))
    );
}

#[tokio::test]
async fn the_kernel_sends_no_more_at_once_than_there_is_room_for() {
    assert_eq!(reserve().background_max(512), 512);
    let reserve = with_disk();
    let spill = reserve.spill.as_ref().expect("there is a disk");
    let held = spill.certain().map_or(512, |places| places.max(1));
    assert_eq!(u32::from(reserve.background_max(512)), held);
    assert_eq!(reserve.background_max(1), 1);
}

#[tokio::test]
async fn without_a_disk_a_write_of_the_page_cache_fails_and_is_never_shortened() {
    let reserve = reserve();
    let _held = admit_many(&reserve, 5, BLOCK_SIZE);
    let late = reserve.admit(BLOCK_SIZE, WriteOrigin::PageCache);
    assert!(matches!(late, Admitted::OnDisk));
    let refused = reserve
        .spill(&[1; BLOCK_SIZE], WriteOrigin::PageCache)
        .paid()
        .await;
    assert_eq!(refused.err(), Some(FsError::OutOfMemory));
}
