//! What a Java virtual machine really needs: the bytes on its heap after a full collection.
//!
//! Asked as `jcmd` does it, which only comes with a development kit: a file beside the process and SIGQUIT make it listen
//! on a socket, which takes commands.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_bench::Outcome;

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) fn live_bytes(pid: u32) -> Outcome<u64> {
    ask(pid, "GC.run")?;
    used_bytes(&ask(pid, "GC.heap_info")?)
}

fn ask(pid: u32, command: &str) -> Outcome<String> {
    let mut stream = UnixStream::connect(socket(pid)?)?;
    // The version of the protocol, the command, and its three arguments.
    stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once('\n') {
        Some(("0", words)) => Ok(words.to_owned()),
        _ => Err(format!("the virtual machine does not do {command}: {answer}").into()),
    }
}

fn socket(pid: u32) -> Outcome<PathBuf> {
    let socket = PathBuf::from(format!("/tmp/.java_pid{pid}"));
    if socket.exists() {
        return Ok(socket);
    }
    let wish = format!("/proc/{pid}/cwd/.attach_pid{pid}");
    fs::write(&wish, "")?;
    let asked = Command::new("kill").args(["-QUIT", &pid.to_string()]).status();
    let deadline = Instant::now() + PATIENCE;
    while !socket.exists() && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    // It goes whether or not it was of use.
    let _ = fs::remove_file(&wish);
    asked?;
    if socket.exists() { Ok(socket) } else { Err("the virtual machine does not listen".into()) }
}

/// The sum of what is used of each part of the heap, up to where classes begin.
fn used_bytes(heap_info: &str) -> Outcome<u64> {
    let parts = heap_info.lines().take_while(|line| !line.contains("Metaspace"));
    let used_kib = parts.filter_map(|line| {
        let (_, behind) = line.split_once(" used ")?;
        let digits = behind.split('K').next()?;
        digits.trim().parse::<u64>().ok()
    });
    let used_kib: Vec<u64> = used_kib.collect();
    if used_kib.is_empty() {
        return Err(format!("no heap in {heap_info}").into());
    }
    Ok(used_kib.iter().sum::<u64>() * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_of_the_heap_count_and_classes_do_not() {
        let serial = " def new generation   total 9792K, used 1000K [0x0)\n  eden space 8704K,  10% used [0x0)\n \
                      tenured generation   total 21888K, used 500K [0x0)\n Metaspace       used 700K, committed 1M\n";
        assert_eq!(used_bytes(serial).unwrap(), 1_500 * 1_024);
        let g1 = " garbage-first heap   total 1013760K, used 14208K [0x1)\n  region size 4096K, 2 young\n \
                  Metaspace       used 9K\n";
        assert_eq!(used_bytes(g1).unwrap(), 14_208 * 1_024);
        assert!(used_bytes("nothing").is_err());
    }
}
