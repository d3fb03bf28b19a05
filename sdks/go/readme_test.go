package holdfast_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"holdfast/sdks/go/holdfasttest"
)

var buildFlags []string

// The lines of the README run in an empty directory, with a `replace`; so do those that the product shows elsewhere.
func TestTheLinesOfTheReadmeRunFromAnEmptyDirectory(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(readme), "```go\npackage main")
	lines, _, _ := strings.Cut(after, "```")
	library, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	server := holdfasttest.Start(t)
	directory := t.TempDir()
	program := "package main" + strings.ReplaceAll(lines, "127.0.0.1:7420", server.Endpoint)
	if err := os.WriteFile(filepath.Join(directory, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) string {
		t.Helper()
		command := exec.Command("go", arguments...)
		command.Dir = directory
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v: %s", strings.Join(arguments, " "), err, out)
		}
		return string(out)
	}
	run("mod", "init", "try")
	run("mod", "edit", "-require=holdfast/sdks/go@v0.0.0", "-replace=holdfast/sdks/go="+library)
	run("get", ".")
	if told := run(append(append([]string{"run"}, buildFlags...), ".")...); !strings.Contains(told, "held, with the fencing token 1") {
		t.Fatal(told)
	}
	// The line that `holdfast dev` prints, and the lines in the README of the product.
	dev, err := os.ReadFile(filepath.Join("..", "..", "crates", "cli", "src", "dev.rs"))
	if err != nil {
		t.Fatal(err)
	}
	product, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`"Go",\s*"(.*)",`).FindStringSubmatch(string(dev))
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(string(product))
	printed := strings.NewReplacer(`\"`, `"`, "ADDRESS", server.Endpoint).Replace(line[1])
	lines = strings.ReplaceAll(block[1], "127.0.0.1:7420", server.Endpoint)
	program = "package main\nimport (\"context\"; \"fmt\"; \"time\"; holdfast \"holdfast/sdks/go\")\n" +
		"var ctx = context.Background()\n" +
		"func main() {\n" + printed + "\nfmt.Println(err, guard.Name())\nreadme()\n}\n" +
		"func readme() {\n" + lines + "\nfmt.Println(err, fence[:6])\n}\n"
	if err := os.WriteFile(filepath.Join(directory, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if told := run(append(append([]string{"run"}, buildFlags...), ".")...); told != "<nil> demo\n<nil> hf1.L.\n" {
		t.Fatal(told)
	}
}
