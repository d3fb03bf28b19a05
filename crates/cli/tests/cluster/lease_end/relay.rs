//! A TCP relay, for a test that kills it: `relay TARGET` prints the address where it listens.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a helper of a test")]

use std::net::{TcpListener, TcpStream};
use std::thread;

fn main() {
    let target = std::env::args().nth(1).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap());
    for near in listener.incoming() {
        let (near, far) = (near.unwrap(), TcpStream::connect(&target).unwrap());
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        for (mut from, mut to) in
            [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
        {
            thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
    }
}
