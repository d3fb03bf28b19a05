//! `cargo xtask java`: checks the format of the Java library, tests it against a real node, and builds its reference.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::built;
use crate::dev_cluster::DevCluster;
use crate::failure::Failure;
use crate::process;
use crate::servers::{self, Server};

const LIBRARY: &str = "sdks/java";

pub(crate) const JAVA: [Server; 2] = [
    Server { name: "Java", program: "javac", debian_package: "openjdk-17-jdk-headless" },
    Server { name: "Maven", program: "mvn", debian_package: "maven" },
];

/// What fences are tried on.
const DATABASES: [Server; 2] = [
    Server { name: "PostgreSQL", program: "initdb", debian_package: "postgresql" },
    Server { name: "Redis", program: "redis-server", debian_package: "redis-server" },
];

/// The plugin's version is that of the library's own project: what it needs is there already.
const PROJECT: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>try</groupId>
<artifactId>try</artifactId>
<version>1</version>
<dependencies>
DEPENDENCY</dependencies>
<build><plugins><plugin>
  <artifactId>maven-dependency-plugin</artifactId>
  <version>3.8.1</version>
</plugin></plugins></build>
</project>
"#;

/// The arguments are passed on to Maven.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    servers::see_to(&JAVA)?;
    servers::see_to(&DATABASES)?;
    process::run(&mut process::cargo(["build", "--locked", "--quiet", "--package=holdfast"]))?;
    let holdfast = format!("holdfast{}", std::env::consts::EXE_SUFFIX);
    let target = built::target_directory()?;
    let holdfast = target.join("debug").join(holdfast);
    process::run(maven(&["verify"]).args(arguments).env("HOLDFAST_BIN", &holdfast))?;
    try_readme(&holdfast, &target.join("java-readme"))
}

/// What a new user does: the README's command installs the library, and its first lines run in a project that has the
/// README's dependency and nothing else.
fn try_readme(holdfast: &Path, project: &Path) -> Result<(), Failure> {
    let readme = process::repository_root().join(LIBRARY).join("README.md");
    let text = fs::read_to_string(&readme).map_err(|error| {
        Failure::Failed(format!("{} cannot be read: {error}", readme.display()))
    })?;
    let lacks = || Failure::Failed(format!("{} has no command or no lines", readme.display()));
    let install = text.lines().find(|line| line.starts_with("mvn install ")).ok_or_else(lacks)?;
    let install = install.split_once('#').map_or(install, |(command, _comment)| command);
    let dependency = block(&text, "xml").ok_or_else(lacks)?;
    let lines = block(&text, "java").ok_or_else(lacks)?;

    let cluster = DevCluster::start(holdfast)?;
    let not_written =
        |error| Failure::Failed(format!("{} cannot be written: {error}", project.display()));
    if project.exists() {
        fs::remove_dir_all(project).map_err(not_written)?;
    }
    fs::create_dir_all(project).map_err(not_written)?;
    let lines = lines.replace("127.0.0.1:7420", &cluster.endpoint);
    let files = [("Locks.java", lines), ("pom.xml", PROJECT.replace("DEPENDENCY", dependency))];
    for (name, content) in files {
        fs::write(project.join(name), content).map_err(not_written)?;
    }
    eprintln!("xtask: trying the README of {LIBRARY} in {}", project.display());
    process::run(process::program("sh").arg("-c").arg(format!("{install} --quiet --batch-mode")))?;
    let goals = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=lib"];
    process::run(maven(&goals).current_dir(project))?;
    let mut run = process::program("java");
    let printed = process::read(run.args(["-cp", "lib/*", "Locks.java"]).current_dir(project))?;
    match printed.contains("held, with the fencing token") {
        true => Ok(()),
        false => Err(Failure::Failed(format!("the lines of the README printed {printed:?}"))),
    }
}

/// The first block in this language.
fn block<'a>(markdown: &'a str, language: &str) -> Option<&'a str> {
    let (_, after) = markdown.split_once(&format!("```{language}\n"))?;
    after.split_once("```").map(|(block, _)| block)
}

/// Builds the driver of the conformance suite, and nothing that it does not need.
pub(crate) fn build_driver() -> Result<(), Failure> {
    servers::see_to(&JAVA)?;
    process::run(&mut maven(&["package", "--projects=conformance", "--also-make", "-DskipTests"]))
}

fn maven(goals: &[&str]) -> std::process::Command {
    let mut command = process::program("mvn");
    command.args(["--quiet", "--batch-mode", "--no-transfer-progress"]).args(goals);
    command.current_dir(process::repository_root().join(LIBRARY));
    command
}
