//! The files in `deploy/` fit this program: they parse, their commands and variables are known, and their probes name
//! paths that a node serves. Nodes with their configurations run in `tests/cluster/deployed.rs`.

use std::collections::BTreeSet;
use std::path::Path;

use holdfast_server::http_paths;
use yaml_rust2::{Yaml, YamlLoader};

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn yaml(file: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

const YAML: [&str; 5] = [
    "docker/compose.yaml",
    "kubernetes/holdfast.yaml",
    "prometheus/alerts.yml",
    "prometheus/alerts_test.yml",
    "prometheus/scrape.yml",
];

/// Of the program, in all files: what a shell, systemd, Docker or Kubernetes runs, and what comments tell people to run.
fn commands() -> Vec<(&'static str, Vec<String>)> {
    let mut commands = Vec::new();
    for file in ["docker/compose.yaml", "kubernetes/holdfast.yaml", "systemd/holdfast.service"]
        .into_iter()
        .chain(["docker/node.toml", "systemd/node.toml", "prometheus/scrape.yml"])
    {
        // A command may go on in the next line.
        let text = read(file).replace("\\\n#", " ").replace("\\\n", " ");
        commands.extend(text.lines().flat_map(in_line).map(|command| (file, command)));
    }
    let container = &yaml("kubernetes/holdfast.yaml");
    for args in everywhere(container, "args") {
        let words: Vec<String> = strings(args).collect();
        if words.len() > 1 {
            commands.push(("kubernetes/holdfast.yaml", words));
        }
    }
    let dockerfile = read("docker/Dockerfile");
    let command = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).expect("no CMD");
    commands.push(("docker/Dockerfile", serde_json::from_str(command).unwrap()));
    commands
}

/// The words after each `holdfast` that begins a command in the line.
fn in_line(line: &str) -> Vec<Vec<String>> {
    let line = line.trim_start_matches(['#', ' ']);
    let begins = ["holdfast ", "exec holdfast ", "ExecStart=/usr/local/bin/holdfast "];
    let in_the_line = [" -- holdfast ", "do holdfast "];
    let rest = begins
        .iter()
        .find_map(|begin| line.strip_prefix(begin))
        .or_else(|| in_the_line.iter().find_map(|begin| Some(line.split_once(begin)?.1)));
    let words = |rest: &str| {
        // What the shell computes is one word.
        let rest = rest.replace("$((id - 1))", "0");
        let command = rest.split(['|', ';', '#']).next().unwrap_or_default();
        let of_shell = |word: &str| word.trim_matches('"').replace("$$id", "1").replace("$id", "1");
        command.split_whitespace().map(of_shell).collect()
    };
    rest.map(words).into_iter().collect()
}

/// The values of all keys of this name.
fn everywhere<'a>(documents: &'a [Yaml], key: &str) -> Vec<&'a Yaml> {
    fn search<'a>(node: &'a Yaml, key: &str, found: &mut Vec<&'a Yaml>) {
        match node {
            Yaml::Hash(map) => {
                for (name, value) in map {
                    if name.as_str() == Some(key) {
                        found.push(value);
                    }
                    search(value, key, found);
                }
            }
            Yaml::Array(values) => values.iter().for_each(|value| search(value, key, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    documents.iter().for_each(|document| search(document, key, &mut found));
    found
}

fn strings(array: &Yaml) -> impl Iterator<Item = String> {
    array.as_vec().into_iter().flatten().filter_map(|word| word.as_str().map(str::to_owned))
}

fn known_variables() -> BTreeSet<String> {
    fn collect(command: &clap::Command, known: &mut BTreeSet<String>) {
        let of_arguments = command.get_arguments().filter_map(clap::Arg::get_env);
        known.extend(of_arguments.map(|name| name.to_string_lossy().into_owned()));
        command.get_subcommands().for_each(|command| collect(command, known));
    }
    let mut known = BTreeSet::from(["HOLDFAST_CONFIG".to_owned()]);
    collect(&crate::cli::command(), &mut known);
    known
}

#[test]
fn every_yaml_file_parses() {
    for file in YAML {
        assert!(!yaml(file).is_empty(), "{file}");
    }
}

#[test]
fn every_command_in_the_deploy_files_is_one_that_the_program_takes() {
    let commands = commands();
    for (file, words) in &commands {
        let line = std::iter::once("holdfast").chain(words.iter().map(String::as_str));
        let parsed = crate::cli::command().try_get_matches_from(line);
        assert!(parsed.is_ok(), "{file}: {words:?}: {}", parsed.unwrap_err());
    }
    for (file, verb) in [
        ("systemd/holdfast.service", "server"),
        ("docker/Dockerfile", "server"),
        ("docker/compose.yaml", "server"),
        ("docker/compose.yaml", "cert"),
        ("kubernetes/holdfast.yaml", "server"),
        ("kubernetes/holdfast.yaml", "cert"),
    ] {
        let is_it = |(of, words): &&(&str, Vec<String>)| {
            *of == file && words.iter().any(|word| word == verb)
        };
        assert!(commands.iter().find(is_it).is_some(), "{file} has no `holdfast {verb}`");
    }
}

#[test]
fn every_variable_in_the_deploy_files_is_one_that_the_program_reads() {
    let known = known_variables();
    let mut count = 0;
    for file in YAML.into_iter().chain(["systemd/holdfast.service", "docker/Dockerfile"]) {
        let text = read(file);
        for (at, _) in text.match_indices("HOLDFAST_") {
            let rest = &text[at..];
            let end =
                rest.find(|c: char| c != '_' && !c.is_ascii_uppercase()).unwrap_or(rest.len());
            assert!(known.contains(&rest[..end]), "{file}: {}", &rest[..end]);
            count += 1;
        }
    }
    assert!(count >= 4, "only {count} variables were found");
}

#[test]
fn probes_and_scrapes_name_paths_and_ports_that_a_node_serves() {
    let manifest = yaml("kubernetes/holdfast.yaml");
    let ports: BTreeSet<&str> = everywhere(&manifest, "ports")
        .into_iter()
        .flat_map(|ports| ports.as_vec().into_iter().flatten())
        .filter_map(|port| port["name"].as_str())
        .collect();
    let probes = everywhere(&manifest, "httpGet");
    assert_eq!(probes.len(), 3, "startup, liveness, readiness");
    for probe in probes {
        let path = probe["path"].as_str().unwrap();
        assert!(http_paths().any(|known| known == path), "{path}");
        assert!(ports.contains(probe["port"].as_str().unwrap()), "{probe:?}");
        assert_eq!(probe["scheme"].as_str(), Some("HTTPS"), "the nodes speak TLS");
    }
    let scraped = everywhere(&manifest, "prometheus.io/path");
    let scrape = yaml("prometheus/scrape.yml");
    let metrics_path = everywhere(&scrape, "metrics_path");
    for path in scraped.into_iter().chain(metrics_path) {
        let path = path.as_str().unwrap();
        assert!(http_paths().any(|known| known == path), "{path}");
    }
}
