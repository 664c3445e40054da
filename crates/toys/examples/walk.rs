//! The toy door in front of the toy volume: `cargo run -p penstock-toys --example walk`.

use std::io::{self, Write};

use bytes::Bytes;
use penstock_base::clock;
use penstock_toys::{GeneratedVolume, walk};
use penstock_vfs::Identity;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut volume = GeneratedVolume::new(clock::wall_time()).with(
        "now",
        Box::new(|| format!("{:?}\n", clock::wall_time()).into()),
    )?;
    for number in 1_u64..=3 {
        let square = move || Bytes::from(format!("{}\n", number * number));
        volume = volume.with(&format!("squares/{number}"), Box::new(square))?;
    }
    let mut out = io::stdout();
    let walked = walk(&volume, &Identity::root(), &mut out).await?;
    writeln!(out, "{walked:?}")?;
    Ok(())
}
