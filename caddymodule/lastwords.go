package caddymodule

import (
	"slices"

	"github.com/caddyserver/caddy/v2"

	"github.com/comfyhub/comfyhub/internal/config"
)

// LastWords are words of the last version. They have their effect for one more; the tag `now`
// says what takes their place, if anything does.
type LastWords struct {
	MaxBody        int64           `json:"max_body,omitempty" word:"max_body <size>" now:"max_upload"`
	BodyMemory     int64           `json:"body_memory,omitempty" word:"body_memory <size>" now:"memory"`
	PictureMemory  int64           `json:"picture_memory,omitempty" word:"picture_memory <size>" now:"memory"`
	SpoolSize      int64           `json:"spool_size,omitempty" word:"spool_size <size>" now:"memory"`
	Overtaking     *caddy.Duration `json:"overtaking,omitempty" word:"overtaking <duration>|off" now:"order"`
	ShortFirst     *caddy.Duration `json:"short_first,omitempty" word:"short_first <duration>|off" now:"order"`
	TenantWeights  TenantWeights   `json:"tenant_weights,omitempty" word:"tenant_weights { <tenant> <n> }" now:"tenant_limits <tenant> { weight <n> }"`
	ContactTimeout caddy.Duration  `json:"contact_timeout,omitempty" word:"contact_timeout <duration>" now:""`
	CatalogAge     caddy.Duration  `json:"catalog_age,omitempty" word:"catalog_age <duration>" now:""`
	A1111API       string          `json:"a1111_api,omitempty" word:"a1111_api on|off" now:"respond /sdapi/* 404"`
}

// LastLimits are words of the last version in `tenant_limits`.
type LastLimits struct {
	QueueSize     int64 `json:"queue_size,omitempty" word:"queue_size <size>" now:"max_queue_size"`
	Sockets       int   `json:"sockets,omitempty" word:"sockets <n>" now:"max_sockets"`
	History       int   `json:"history,omitempty" word:"history <n>" now:"tenant_limits { history_size <size> }"`
	Userdata      int64 `json:"userdata,omitempty" word:"userdata <size>" now:""`
	UserdataFiles int   `json:"userdata_files,omitempty" word:"userdata_files <n>" now:""`
	InputFiles    int   `json:"input_files,omitempty" word:"input_files <n>" now:"tenant_limits { inputs <size> }"`
}

// doubts are what a configuration says that its operator may not have meant, or should say in
// other words.
func (a *App) doubts() []config.Finding {
	return slices.Concat(secretDoubts(a.inline), a.lastDoubts(), emptyDoubts(a.empty))
}

// lastDoubts are about the words of the last version that a configuration has, one for each.
func (a *App) lastDoubts() (list []config.Finding) {
	told := map[string]bool{}
	tell := func(block string, words any) {
		for w := range wordsOf(words) {
			name := block + w.name
			if w.field.IsZero() || told[name] {
				continue
			}
			told[name] = true
			do := "leave it out: it is no longer needed"
			if w.now != "" {
				do = "use `" + w.now + "`, or leave it out; see docs/caddyfile.md"
			}
			list = append(list, config.Finding{
				Level: config.LevelWarning, About: "words", Says: name + " is a word of the last version, and ends with the next", Do: do,
			})
		}
	}
	tell("", &a.LastWords)
	if a.TenantLimits != nil {
		tell("tenant_limits ", &a.TenantLimits.LastLimits)
	}
	for _, l := range a.TenantLimitsOf {
		if l != nil {
			tell("tenant_limits ", &l.LastLimits)
		}
	}
	return list
}
