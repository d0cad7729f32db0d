// Package figure is what benchmarks print: a value beside its goal.
package figure

import (
	"errors"
	"fmt"
	"strings"
)

// Figure is the result of a benchmark.
type Figure struct {
	Name  string
	Value float64
	Unit  string
	// Goal is what the value should be at least, or at most where lower is better.
	Goal  float64
	Lower bool
	// Beside is what else was measured, for people.
	Beside string
}

// Kept reports whether the value meets its goal.
func (f Figure) Kept() bool {
	if f.Lower {
		return f.Value <= f.Goal
	}
	return f.Value >= f.Goal
}

// String is the line that programs read, and a second one for people.
func (f Figure) String() string {
	better := "higher"
	if f.Lower {
		better = "lower"
	}
	line := fmt.Sprintf("BENCH name=%s value=%.4g unit=%s goal=%g better=%s", f.Name, f.Value, f.Unit, f.Goal, better)
	if f.Beside != "" {
		line += "\n      " + f.Beside
	}
	return line
}

// Row is a row of the tables in docs/performance.md, given what is compared.
func (f Figure) Row(about string) string {
	bound := "at least"
	if f.Lower {
		bound = "at most"
	}
	unit := map[string]string{"percent": " %", "ratio": ""}
	suffix, known := unit[f.Unit]
	if !known {
		suffix = " " + f.Unit
	}
	return fmt.Sprintf("| `%s` | %s | %.2g%s | %s %g%s |", f.Name, about, f.Value, suffix, bound, f.Goal, suffix)
}

// Find reads the first figure of a text, as String writes it.
func Find(text string) (f Figure, err error) {
	_, text, found := strings.Cut(text, "BENCH ")
	if !found {
		return f, errors.New("no figure")
	}
	line, rest, _ := strings.Cut(text, "\n")
	better := ""
	if _, err := fmt.Sscanf(line, "name=%s value=%g unit=%s goal=%g better=%s", &f.Name, &f.Value, &f.Unit, &f.Goal, &better); err != nil {
		return f, err
	}
	f.Lower = better == "lower"
	if beside, _, _ := strings.Cut(rest, "\n"); strings.HasPrefix(beside, "      ") {
		f.Beside = strings.TrimSpace(beside)
	}
	return f, nil
}
