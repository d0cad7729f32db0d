package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// littleMemory is a bound of Redis's memory that the default history may reach: ten thousand
// jobs of some 10 KB each, with the names of their files and as much again while Redis
// rewrites its file.
const littleMemory = 256 << 20

// oldestMajor is the oldest version of Redis that the hub is tested with.
const oldestMajor = 7

// Warnings checks the server's settings and describes in plain sentences what would
// lose or refuse jobs. Managed services often refuse CONFIG: what cannot be queried causes no
// warning. The error is not nil if Redis is unavailable.
func (db *DB) Warnings(ctx context.Context) ([]string, error) {
	if db.embedded != nil {
		return nil, nil
	}
	if err := db.Ping(ctx); err != nil {
		return nil, err
	}
	var warnings []string
	if version := db.version(ctx); tooOld(version) {
		warnings = append(warnings, fmt.Sprintf("Redis %s is too old: not all repairs after a failover work with it; use %d.0 or later, or Valkey", version, oldestMajor))
	}
	if info, err := db.client.Info(ctx, "persistence").Result(); err == nil &&
		strings.Contains(info, "aof_enabled:0") {
		warnings = append(warnings, "Redis keeps no append-only file (appendonly no): "+
			"when it stops, jobs that were accepted are lost; set appendonly yes")
	}
	if run, err := db.Incarnation(ctx); err == nil && run == "" {
		warnings = append(warnings, "Redis does not let its user call INFO: the hub does not notice that Redis was restarted or replaced, "+
			"and puts nothing back of what it lost; allow the user +info")
	}
	config, err := db.client.ConfigGet(ctx, "maxmemory*").Result()
	if err != nil {
		return warnings, nil //nolint:nilerr // what cannot be asked causes no warning
	}
	if policy := config["maxmemory-policy"]; config["maxmemory"] != "0" && policy != "" && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("Redis drops keys when its memory is full (maxmemory-policy %s): "+
			"jobs would vanish; set maxmemory-policy noeviction", policy))
	}
	if bound, err := strconv.ParseUint(config["maxmemory"], 10, 64); err == nil && bound > 0 && bound < littleMemory {
		warnings = append(warnings, fmt.Sprintf("Redis has little memory (maxmemory %s, less than %s): the history and the waiting prompts are there, "+
			"and when it is full, the oldest history is dropped and then prompts are refused; raise maxmemory",
			humanize.IBytes(bound), humanize.IBytes(littleMemory)))
	}
	return warnings, nil
}

// version is what the server says that it is compatible with, such as "7.2.4"; empty if it
// does not say.
func (db *DB) version(ctx context.Context) string {
	info, err := db.client.Info(ctx, "server").Result()
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(info, "redis_version:")
	version, _, _ := strings.Cut(rest, "\r\n")
	return version
}

// tooOld reports a version before oldestMajor, if it has the form of one.
func tooOld(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < oldestMajor
}
