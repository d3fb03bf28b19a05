//! A real browser, for the tests of the dashboard and for pictures of it: Debian's `chromium`, told what to do
//! through `chromedriver` by the WebDriver protocol, which is JSON over HTTP on loopback.
//!
//! This is a tool for tests: what goes wrong comes back as words, and every wait has an end.

mod base64;
mod http;

use std::env;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use http::{Answer, request};

const PATIENCE: Duration = Duration::from_secs(15);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(40);

/// What went wrong, in words.
pub type Outcome<T> = Result<T, String>;

/// One browser with one window. It is closed with the value.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: String,
    session: String,
}

/// Which programs are missing; none if the browser can be started.
pub fn missing() -> Option<&'static str> {
    [("chromedriver", "chromium-driver"), ("chromium", "chromium")]
        .into_iter()
        .find(|(program, _)| find(program).is_none())
        .map(|(_, package)| package)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

impl Browser {
    pub fn start(width: u32, height: u32) -> Outcome<Browser> {
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let port = match port_of(&mut driver) {
            Ok(port) => port,
            Err(words) => {
                let _ = driver.kill();
                let _ = driver.wait();
                return Err(words);
            }
        };
        let address = format!("127.0.0.1:{port}");
        let mut browser = Browser { driver, address, session: String::new() };
        let options = json!({ "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--hide-scrollbars", "--no-first-run", "--disable-background-networking",
            "--disable-extensions", "--disable-sync", "--force-color-profile=srgb", "--lang=en",
            format!("--window-size={width},{height}"),
        ]});
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options,
        }}});
        let begun = browser.call("POST", "/session", &wanted)?;
        browser.session = begun["sessionId"].as_str().ok_or("no session id")?.to_owned();
        Ok(browser)
    }

    pub fn open(&self, url: &str) -> Outcome<()> {
        self.tell("url", &json!({ "url": url })).map(drop)
    }

    /// Runs a function's body in the page; its value comes back.
    pub fn run(&self, script: &str, arguments: &[Value]) -> Outcome<Value> {
        self.tell("execute/sync", &json!({ "script": script, "args": arguments }))
    }

    /// The text that a person sees in the first element that matches; empty if there is none.
    pub fn text(&self, selector: &str) -> Outcome<String> {
        let found = self.run(
            "const one = document.querySelector(arguments[0]); return one ? one.innerText : ''",
            &[json!(selector)],
        )?;
        Ok(found.as_str().unwrap_or_default().to_owned())
    }

    /// Asks again and again until the text is as wanted; gives it back.
    pub fn wait_for_text(&self, selector: &str, wanted: impl Fn(&str) -> bool) -> Outcome<String> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let text = self.text(selector)?;
            if wanted(&text) {
                return Ok(text);
            }
            if Instant::now() >= give_up {
                return Err(format!("not within {PATIENCE:?}: {selector} shows {text:?}"));
            }
            std::thread::sleep(ASK_AGAIN_AFTER);
        }
    }

    /// A click as a person makes it: on what is visible there.
    pub fn click(&self, selector: &str) -> Outcome<()> {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let clicked = self
                .element(selector)
                .and_then(|element| self.tell(&format!("element/{element}/click"), &json!({})));
            match clicked {
                Ok(_) => return Ok(()),
                // Not there yet, or replaced a moment ago.
                Err(words) if Instant::now() >= give_up => return Err(words),
                Err(_) => std::thread::sleep(ASK_AGAIN_AFTER),
            }
        }
    }

    pub fn type_into(&self, selector: &str, text: &str) -> Outcome<()> {
        let element = self.element(selector)?;
        self.tell(&format!("element/{element}/value"), &json!({ "text": text })).map(drop)
    }

    /// Keys for whatever has the focus: Tab is \u{e004}, Enter \u{e007}, Escape \u{e00c}.
    pub fn press(&self, keys: &str) -> Outcome<()> {
        let presses = keys.chars().flat_map(|key| {
            [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]
        });
        let keyboard =
            json!({ "type": "key", "id": "keyboard", "actions": presses.collect::<Vec<_>>() });
        self.tell("actions", &json!({ "actions": [keyboard] })).map(drop)
    }

    /// As a screen of this size would show it, light or dark.
    pub fn pretend(&self, width: u32, height: u32, dark: bool) -> Outcome<()> {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 640 }),
        )?;
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.devtools("Emulation.setEmulatedMedia", json!({ "features": features })).map(drop)
    }

    /// What is in the window, as PNG.
    pub fn picture(&self) -> Outcome<Vec<u8>> {
        let shot = self.devtools(
            "Page.captureScreenshot",
            json!({ "format": "png", "optimizeForSpeed": false }),
        )?;
        base64::decode(shot["data"].as_str().ok_or("no picture")?)
    }

    fn devtools(&self, command: &str, parameters: Value) -> Outcome<Value> {
        self.tell("goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    fn element(&self, selector: &str) -> Outcome<String> {
        let asked = json!({ "using": "css selector", "value": selector });
        let found = self.tell("element", &asked)?;
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        id.map(str::to_owned).ok_or_else(|| format!("no element {selector}"))
    }

    fn tell(&self, what: &str, body: &Value) -> Outcome<Value> {
        self.call("POST", &format!("/session/{}/{what}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Outcome<Value> {
        let headers = [("content-type", "application/json")];
        let body = body.to_string();
        let answer = request(&self.address, method, path, &headers, body.as_bytes())?;
        let mut reported: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("chromedriver answered {}: {error}", answer.status))?;
        let value = reported["value"].take();
        if answer.status == 200 { Ok(value) } else { Err(format!("{path}: {}", value["message"])) }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            let _ = self.call("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The driver chooses a free port and says which.
fn port_of(driver: &mut Child) -> Outcome<u16> {
    let output = driver.stdout.take().ok_or("chromedriver says nothing")?;
    for line in BufReader::new(output).lines() {
        let line = line.map_err(|error| error.to_string())?;
        let port = line.split("on port ").nth(1).map(|rest| rest.trim_end_matches('.'));
        if let Some(port) = port.and_then(|port| port.trim().parse().ok())
            && port != 0
        {
            return Ok(port);
        }
    }
    Err("chromedriver did not start".to_owned())
}
