//! A network that can be cut: a port of this machine in front of a server.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The address of the server.
#[derive(Clone)]
pub(crate) enum Target {
    #[allow(dead_code)]
    Port(String),
    Socket(PathBuf),
}

/// Connections to a server. While the network is cut, open connections are silent, and new ones are not answered.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_cut: AtomicBool,
    refuses: AtomicBool,
    is_over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn to(target: Target) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::new(Shared::default()));
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.is_over.load(Ordering::Acquire) {
                    return;
                }
                if accepting.refuses.load(Ordering::Acquire) {
                    continue;
                }
                accepting.open.lock().unwrap().push(client.try_clone().unwrap());
                let (shared, target) = (Arc::clone(&accepting), target.clone());
                thread::spawn(move || drop(shared.pass_on(&client, &target)));
            }
        });
        Proxy { address, shared }
    }

    /// The host and port.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Refuses connections, or accepts them again; open ones are closed.
    #[allow(dead_code)]
    pub(crate) fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::Release);
        self.shared.close_all();
    }

    /// Cuts the network, or restores it: open connections are closed then, as after a long silence.
    #[allow(dead_code)]
    pub(crate) fn cut(&self, is_cut: bool) {
        self.shared.is_cut.store(is_cut, Ordering::Release);
        if !is_cut {
            self.shared.close_all();
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.close_all();
        // Wakes the thread that waits for clients.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn close_all(&self) {
        self.open.lock().unwrap().drain(..).for_each(|client| drop(client.shutdown(Shutdown::Both)));
    }

    fn pass_on(self: &Arc<Shared>, client: &TcpStream, target: &Target) -> io::Result<()> {
        match target {
            Target::Port(address) => {
                let server = TcpStream::connect(address)?;
                server.set_nodelay(true)?;
                client.set_nodelay(true)?;
                let close = server.try_clone()?;
                self.pass(client, server.try_clone()?, server, move || close.shutdown(Shutdown::Both))
            }
            Target::Socket(path) => {
                let server = UnixStream::connect(path)?;
                client.set_nodelay(true)?;
                let close = server.try_clone()?;
                self.pass(client, server.try_clone()?, server, move || close.shutdown(Shutdown::Both))
            }
        }
    }

    /// Copies in both directions until one of them ends, which ends the other. While the network is cut, the server does
    /// not learn that its client has gone.
    fn pass(
        self: &Arc<Shared>,
        client: &TcpStream,
        to_server: impl Write + Send + 'static,
        from_server: impl Read,
        close_server: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let (there, from_client) = (Arc::clone(self), client.try_clone()?);
        thread::spawn(move || {
            there.copy(from_client, to_server);
            if !there.is_cut.load(Ordering::Acquire) {
                drop(close_server());
            }
        });
        self.copy(from_server, client);
        // The other direction ends with it.
        client.shutdown(Shutdown::Both)
    }

    /// Data that arrives while the network is cut is lost.
    fn copy(&self, mut from: impl Read, mut to: impl Write) {
        let (mut buffer, mut is_dead) = (vec![0; 64 << 10], false);
        while let Ok(n) = from.read(&mut buffer) {
            if n == 0 || self.is_over.load(Ordering::Acquire) {
                return;
            }
            // A stream has no holes: nothing follows lost data.
            is_dead |= self.is_cut.load(Ordering::Acquire);
            if !is_dead && to.write_all(&buffer[..n]).is_err() {
                return;
            }
        }
    }
}
