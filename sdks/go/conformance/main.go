// The driver of the Go library for the conformance suite: JSON lines on standard input and output.
//
// Built with the tag `planted`, it takes --misbehave MODE. Then it breaks a rule of the protocol, and the suite must find
// that.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"

	"holdfast/sdks/go/internal/core"
)

const lineBytesMax = 16 << 20

func main() {
	bug := flag.String("misbehave", "", "the rule to break")
	flag.Parse()
	if *bug != "" {
		if !canMisbehave || !slices.Contains(core.Bugs, core.Bug(*bug)) {
			fmt.Fprintln(os.Stderr, "this driver cannot misbehave so: build it with -tags planted, and name a mode that it has")
			os.Exit(2)
		}
		misbehave(*bug)
	}
	driver := newDriver(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var it request
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		driver.handle(&it)
	}
}
