package caddymodule

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"
)

// parseCount parses a number of at least 1: a zero would silently mean the default.
func parseCount(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number above 0", value)
	}
	return n, nil
}

// parseMoney parses an amount of money for a time, such as 20/day, in whatever money the operator
// counts.
func parseMoney(value, per string) (float64, error) {
	amount, ok := strings.CutSuffix(value, "/"+per)
	n, err := strconv.ParseFloat(amount, 64)
	if !ok || err != nil || !(n > 0) || math.IsInf(n, 1) {
		return 0, fmt.Errorf("%q is not an amount of money such as 20/%s", value, per)
	}
	return n, nil
}

// parseSize parses a number of bytes with an optional unit, such as 100MiB.
func parseSize(value string) (int64, error) {
	n, err := humanize.ParseBytes(value)
	if err != nil || n < 1 || n > 1<<62 {
		return 0, fmt.Errorf("%q is not a size such as 100MiB", value)
	}
	return int64(n), nil
}

// parseDuration parses a duration above 0 such as 90s, 5m or 1d.
func parseDuration(value string) (caddy.Duration, error) {
	d, err := caddy.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a duration such as 90s or 5m", value)
	}
	return caddy.Duration(d), nil
}

// defaultResultAge is how old a result may be that "result_cache on" gives again.
const defaultResultAge = "24h"

// parseOvertaking parses a duration or "off", which is 0.
func parseOvertaking(value string) (*caddy.Duration, error) {
	if value == "off" {
		return new(caddy.Duration), nil
	}
	d, err := parseDuration(value)
	return &d, err
}
