package fleet

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names of agents and instances end up in paths, files and dashboards. An instance
// that was found by its port is named after both.
var (
	agentName    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	instanceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$`)
)

// ErrName is returned for a name that cannot be used.
var ErrName = errors.New("a name has 1 to 64 letters, digits, dots, dashes and underscores")

// CheckName returns [ErrName] for the name of an agent that cannot be used.
func CheckName(name string) error {
	if !agentName.MatchString(name) {
		return fmt.Errorf("%q: %w", name[:min(len(name), 80)], ErrName)
	}
	return nil
}

const (
	// maxURL and maxText bound what a report says of an instance, in bytes.
	maxURL  = 512
	maxText = 300
	// maxCount bounds numbers of prompts.
	maxCount = math.MaxInt32
)

// check bounds a report that was decoded: it may come from a hostile machine.
// Identifiers must be valid; texts, which are only shown, are cut.
func (r *Report) check() error {
	if err := CheckName(r.Agent); err != nil {
		return err
	}
	if len(r.Instances) > MaxInstances {
		return fmt.Errorf("%d instances, where one agent may have %d: another agent must bring the rest", len(r.Instances), MaxInstances)
	}
	named := make(map[string]bool, len(r.Instances))
	for n := range r.Instances {
		i := &r.Instances[n]
		switch {
		case !instanceName.MatchString(i.Name):
			return errors.New("the name of an instance")
		case named[i.Name]:
			return fmt.Errorf("two instances named %q", i.Name)
		case i.URL == "" || len(i.URL) > maxURL:
			return fmt.Errorf("the address of %q", i.Name)
		}
		named[i.Name] = true
		for _, text := range []*string{&i.Kind, &i.Reason, &i.Running, &i.Job, &i.Load, &i.Version, &i.GPU, &i.GPUType, &i.Device, &i.ObjectInfo, &i.RestartError} {
			*text = clip(*text)
		}
		i.Queue, i.Foreign = min(max(i.Queue, 0), maxCount), min(max(i.Foreign, 0), maxCount)
		i.VRAMTotal, i.VRAMFree = max(i.VRAMTotal, 0), max(i.VRAMFree, 0)
		i.Restarts, i.RestartAt = min(max(i.Restarts, 0), maxCount), max(i.RestartAt, 0)
		i.DiskSize = max(i.DiskSize, 0)
		i.DiskFree = min(max(i.DiskFree, 0), i.DiskSize)
		i.OthersMemory, i.OthersUse = min(max(i.OthersMemory, 0), i.VRAMTotal), min(max(i.OthersUse, 0), 100)
	}
	return nil
}

// clip bounds a text and removes control characters, which would reach somebody's
// terminal.
func clip(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if strings.ContainsFunc(text, unicode.IsControl) {
		text = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, text)
	}
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
