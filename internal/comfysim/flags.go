// Package comfysim is what the agent knows of the simulator, the program comfysim: its flags,
// and how it is found, started and ended. The simulator's own code is not in the agent.
package comfysim

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Options are what the simulator is told.
type Options struct {
	// Count servers listen on consecutive ports of loopback, Port the first.
	Count, Port int
	// A1111 plays A1111 servers, not ComfyUI.
	A1111 bool
	// AnyPort uses free loopback ports if the wanted ones are taken.
	AnyPort bool
	// UntilEOF ends the simulator when its standard input ends, and not at a signal.
	UntilEOF bool
	// LogLevel is that of the log, as slog names it.
	LogLevel string
	// Version is the version of ComfyUI that is played.
	Version string
	// StepTime and LoadTime are how long a sampling step and the loading of a model take.
	StepTime, LoadTime time.Duration
	// TimeScale is a factor on every duration.
	TimeScale float64
	// Models are the files that the servers have, FOLDER/NAME.
	Models []string
	// VRAM is the size of the GPU's memory, such as 24GiB.
	VRAM string
	// WorkPreview is the width and height of SimulatedWork's previews in pixels.
	WorkPreview int
	// PreviewMethod and Faults are as the flags say.
	PreviewMethod string
	Faults        []string
	// DisableAssets, DateBasedOutput and FeatureFlags are ComfyUI's own switches of these names.
	DisableAssets, DateBasedOutput bool
	FeatureFlags                   []string
}

// defaultModels are the checkpoints of ComfyUI's own example workflows.
var defaultModels = []string{
	"checkpoints/v1-5-pruned-emaonly-fp16.safetensors", "checkpoints/v1-5-pruned-emaonly.safetensors",
	"checkpoints/sd_xl_base_1.0.safetensors",
}

// ServerFlags adds those that say how each server is; port describes that of the first.
func (o *Options) ServerFlags(f *pflag.FlagSet, port string) {
	f.IntVar(&o.Port, "port", 3188, port)
	f.StringVar(&o.Version, "comfyui-version", "0.3.64", "`version` of ComfyUI to play")
	f.DurationVar(&o.StepTime, "step-time", 100*time.Millisecond, "`duration` of one sampling step")
	f.DurationVar(&o.LoadTime, "load-time", 0, "`duration` of loading a model")
	f.Float64Var(&o.TimeScale, "time-scale", 1, "`factor` on every simulated duration")
	f.StringSliceVar(&o.Models, "model", defaultModels, "model `file` that the servers have, FOLDER/NAME; can be repeated")
	f.StringVar(&o.VRAM, "vram", "24GiB", "`size` of the simulated GPU's memory")
	f.StringVar(&o.PreviewMethod, "preview-method", "none", "`method` of previews: none, auto, latent2rgb, taesd")
	f.IntVar(&o.WorkPreview, "work-preview", 96, "width and height of SimulatedWork's previews in `pixels`: painting large ones takes time")
	f.StringSliceVar(&o.Faults, "fault", nil, "`fault` of every server, can be repeated: fail-every=N, oom-every=N, hang-after-step=N, die-after-step=N, slow-http=MS, mute, zombie, prompt-error, refuse-prompt")
}

// Flags adds those of "agent simulate".
func (o *Options) Flags(f *pflag.FlagSet) {
	o.ServerFlags(f, "first `port`")
	f.IntVar(&o.Count, "count", 1, "`number` of servers")
	f.BoolVar(&o.A1111, "a1111", false, "play servers of A1111's API instead, whose checkpoints and LoRAs are the models in checkpoints/ and loras/")
}

// AllFlags adds all that the simulator has.
func (o *Options) AllFlags(f *pflag.FlagSet) {
	o.Flags(f)
	f.BoolVar(&o.DisableAssets, "disable-assets", false, "have no database of assets, as 0.38 and later do with this switch")
	f.BoolVar(&o.DateBasedOutput, "date-based-output", false, "save into a folder for each day, as 0.38 and later do with this switch")
	f.StringArrayVar(&o.FeatureFlags, "feature-flag", nil, "feature `flag` that the servers announce from 0.20 on, NAME=VALUE, or NAME for NAME=true; can be repeated")
	f.StringVar(&o.LogLevel, "log-level", "info", "`level` of the log: debug, info, warn, error")
	f.BoolVar(&o.AnyPort, "any-port", false, "use free ports of loopback where the wanted ones are taken")
	f.BoolVar(&o.UntilEOF, "until-eof", false, "end when standard input ends, and not at a signal: for a program that must not leave the simulator behind")
}

// Arguments are the simulator's for what a command of the agent was told, by flags or by
// variables.
func Arguments(told *pflag.FlagSet) (list []string) {
	var o Options
	flags := pflag.NewFlagSet("comfysim", pflag.ContinueOnError)
	o.AllFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		given := told.Lookup(f.Name)
		if given == nil || !given.Changed || given.Value.Type() != f.Value.Type() {
			return
		}
		value := given.Value.String()
		if _, isList := given.Value.(pflag.SliceValue); isList {
			value = strings.TrimSuffix(strings.TrimPrefix(value, "["), "]") // inside, it is what the flag takes
		}
		list = append(list, "--"+f.Name+"="+value)
	})
	return list
}
