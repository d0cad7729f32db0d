package sim

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Config describes a simulated instance. The zero value is a usable 0.3.64
// with no models.
type Config struct {
	// Version is the ComfyUI release to simulate, default "0.3.64". Only 0.3.64 and
	// 0.33.0 were recorded; 0.38.1 is as its source says; others are derived from the table of changes.
	Version string
	// Name appears in pictures and logs, default "comfyui".
	Name string
	// Dir holds the folders input, output, temp and user. If empty, a temporary
	// folder is created, and removed by Close.
	Dir string
	// StepTime is the time of one sampling step of one picture, default 100 ms. Decoding,
	// encoding and upscaling count as a few steps.
	StepTime time.Duration
	// LoadTime is the time to load a model that is not in memory, default 0.
	LoadTime time.Duration
	// Overhead is the time that a run takes besides its nodes, default 5 ms.
	Overhead time.Duration
	// TimeScale multiplies every simulated duration, default 1. 0.01 makes the
	// instance a hundred times faster.
	TimeScale float64
	// Clock is the clock of the instance, default real time times TimeScale.
	Clock Clock
	// ArrangeOutputs puts the output nodes of a prompt into the order of their
	// execution. Default: the order of the graph. Python keeps them in a set, whose
	// order differs between starts. A replay follows the recorded order.
	ArrangeOutputs func(outputs []string) []string
	// Models lists model files by folder ("checkpoints", "loras", "vae", ...), with
	// sub-folders in the names. They appear in the listings and are accepted by the
	// loaders; the files need not exist. Files below Dir/models/FOLDER are listed
	// as well, as soon as they exist.
	Models map[string][]string
	// VRAM is the memory of the simulated GPU in bytes, default 24 GiB.
	VRAM int64
	// CustomClasses adds node classes: name to the object in GET /object_info. They
	// run like any class without its own executor: the first input of the output's
	// type is passed through.
	CustomClasses map[string]*pyjson.Object
	// OnlyClasses, if there are any, are the only ones of the recorded node classes that it has.
	OnlyClasses []string
	// OmitClasses removes node classes, as if their pack were not installed.
	OmitClasses []string
	// MaxUploadSize is the limit of request bodies in bytes, default 100 MiB.
	MaxUploadSize int64
	// PreviewMethod is the value of --preview-method: "none" (the default), "auto",
	// "latent2rgb" or "taesd". The last three look the same here.
	PreviewMethod string
	// WorkPreview is the width and height of SimulatedWork's previews, default 96. Painting
	// takes time.
	WorkPreview int
	// Cache is the node result cache: "classic" (the default), "none", or
	// "lru" with CacheSize entries.
	Cache string
	// CacheSize is the number of results an "lru" cache holds.
	CacheSize int
	// CORSOrigin is the value of --enable-cors-header; it replaces the Origin check.
	CORSOrigin string
	// MultiUser separates settings and user data by the header comfy-user.
	MultiUser bool
	// DisableAssets simulates --disable-assets, DateBasedOutput --date-based-output, of the
	// versions that know these options.
	DisableAssets, DateBasedOutput bool
	// FeatureFlags are those of --feature-flag, KEY=VALUE, or KEY for KEY=true. Versions that
	// do not know the option ignore them.
	FeatureFlags []string
	// Annotate adds members to the entry of each file that is saved, as nodes may do, before the
	// server adds its own. Default none.
	Annotate func(file *pyjson.Object)
	// DisableAPINodes simulates --disable-api-nodes, which newer versions answer
	// with a Content-Security-Policy on every page.
	DisableAPINodes bool
	// IndexPage is the body of GET /, default a short notice.
	IndexPage string
	// Faults are in force from the start, see SetFault.
	Faults Faults
	// OnCrash is called on its own goroutine when a SimulatedWork node is asked to
	// crash the process. By default the instance is killed, and restarted after one
	// second (times TimeScale).
	OnCrash func(*Server)
	// Logger records what the instance does, default none.
	Logger *slog.Logger
}

const (
	defaultVersion  = "0.3.64"
	defaultVRAM     = 24 << 30
	defaultMaxBody  = 100 << 20
	defaultStepTime = 100 * time.Millisecond
	defaultOverhead = 5 * time.Millisecond
)

func (c Config) withDefaults() (Config, error) {
	c.Version = cmp.Or(c.Version, defaultVersion)
	c.Name = cmp.Or(c.Name, "comfyui")
	c.StepTime = cmp.Or(c.StepTime, defaultStepTime)
	c.Overhead = cmp.Or(c.Overhead, defaultOverhead)
	c.TimeScale = cmp.Or(c.TimeScale, 1)
	if c.Clock == nil {
		c.Clock = scaledClock(c.TimeScale)
	}
	if c.ArrangeOutputs == nil {
		c.ArrangeOutputs = func(outputs []string) []string { return outputs }
	}
	c.VRAM = cmp.Or(c.VRAM, defaultVRAM)
	c.MaxUploadSize = cmp.Or(c.MaxUploadSize, defaultMaxBody)
	c.PreviewMethod = cmp.Or(c.PreviewMethod, "none")
	c.Cache = cmp.Or(c.Cache, cacheClassic)
	c.IndexPage = cmp.Or(c.IndexPage, "<!doctype html><html><title>ComfyUI</title><p>A simulated ComfyUI server.\n")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.TimeScale < 0 || c.StepTime < 0 || c.LoadTime < 0 || c.Overhead < 0 || c.VRAM < 0 || c.MaxUploadSize < 0 || c.CacheSize < 0 {
		return c, errors.New("sim: durations, sizes and the time scale must not be negative")
	}
	switch c.Cache {
	case cacheClassic, cacheLRU, cacheNone:
	default:
		return c, fmt.Errorf("sim: unknown cache %q", c.Cache)
	}
	return c, nil
}

// argv returns the command line that a real instance with this configuration would
// show.
func (c Config) argv() []string {
	argv := []string{"main.py", "--listen"}
	if c.PreviewMethod != "none" {
		argv = append(argv, "--preview-method", c.PreviewMethod)
	}
	if c.MaxUploadSize != defaultMaxBody {
		argv = append(argv, "--max-upload-size", string(pyjson.Float(float64(c.MaxUploadSize)/(1<<20))))
	}
	switch c.Cache {
	case cacheLRU:
		argv = append(argv, "--cache-lru", fmt.Sprint(c.CacheSize))
	case cacheNone:
		argv = append(argv, "--cache-none")
	}
	if c.CORSOrigin != "" {
		argv = append(argv, "--enable-cors-header", c.CORSOrigin)
	}
	if c.MultiUser {
		argv = append(argv, "--multi-user")
	}
	if c.DisableAssets {
		argv = append(argv, "--disable-assets")
	}
	if c.DateBasedOutput {
		argv = append(argv, "--date-based-output")
	}
	for _, flag := range c.FeatureFlags {
		argv = append(argv, "--feature-flag", flag)
	}
	if c.DisableAPINodes {
		argv = append(argv, "--disable-api-nodes")
	}
	return argv
}
