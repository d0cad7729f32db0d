package redis

import (
	"context"
	"fmt"
	"strings"
)

// Warnings checks the server's settings and describes in plain sentences what would
// lose jobs. Managed services often refuse CONFIG: what cannot be queried causes no
// warning. The error is not nil if Redis is unavailable.
func (db *DB) Warnings(ctx context.Context) ([]string, error) {
	if db.embedded != nil {
		return nil, nil
	}
	if err := db.Ping(ctx); err != nil {
		return nil, err
	}
	var warnings []string
	if info, err := db.client.Info(ctx, "persistence").Result(); err == nil &&
		strings.Contains(info, "aof_enabled:0") {
		warnings = append(warnings, "Redis keeps no append-only file (appendonly no): "+
			"when it stops, jobs that were accepted are lost; set appendonly yes")
	}
	if config, err := db.client.ConfigGet(ctx, "maxmemory*").Result(); err == nil {
		if policy := config["maxmemory-policy"]; config["maxmemory"] != "0" && policy != "" && policy != "noeviction" {
			warnings = append(warnings, fmt.Sprintf("Redis drops keys when its memory is full (maxmemory-policy %s): "+
				"jobs would vanish; set maxmemory-policy noeviction", policy))
		}
	}
	return warnings, nil
}
