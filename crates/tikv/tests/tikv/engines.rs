//! What every engine must do, on a cluster.

use std::sync::Arc;

use crate::{database, suite};

macro_rules! suite_tests {
    ($($test:ident),+ $(,)?) => {
        mod alone {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let directory = tempfile::tempdir().unwrap();
                    if let Some(engine) = database::new_engine(directory.path()).await {
                        suite::$test(engine).await;
                    }
                }
            )+
        }
        mod shared {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    let places = [(); 2].map(|()| tempfile::tempdir().unwrap());
                    if let Some([first, second]) = database::new_engines(&places).await {
                        suite::$test(Arc::new(database::Turns::new([first, second]))).await;
                    }
                }
            )+
        }
    };
}

suite_tests!(
    keys_are_put_got_scanned_and_deleted,
    an_operation_that_fails_leaves_nothing,
    counters_add_up_and_marks_go_forward,
    conditional_changes_are_made_if_all_checks_hold,
    no_two_operations_build_on_what_the_other_changes,
    a_look_sees_one_state,
    many_keys_are_in_order,
);
