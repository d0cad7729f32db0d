package main

import "fmt"

// figure is the result of a benchmark.
type figure struct {
	name  string
	value float64
	unit  string
	// goal is what the value should be at least, or at most where lower is better.
	goal  float64
	lower bool
	// beside is what else was measured, for people.
	beside string
}

// String is the line that programs read, and a second one for people.
func (f figure) String() string {
	better := "higher"
	if f.lower {
		better = "lower"
	}
	line := fmt.Sprintf("BENCH name=%s value=%.4g unit=%s goal=%g better=%s", f.name, f.value, f.unit, f.goal, better)
	if f.beside != "" {
		line += "\n      " + f.beside
	}
	return line
}
