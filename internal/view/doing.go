package view

import (
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
)

// Doing is what a running job is doing right now.
type Doing struct {
	// Node is the id of the running node and Class its class; either may be empty.
	Node, Class string
	// Picture is the latest preview, and Kind its media type; empty for none.
	Picture []byte
	Kind    string
}

// Doing returns what a job is doing, as far as this hub follows its run; the zero value if it
// does not. The first call for a run finds no picture: they are kept only while somebody asks.
func (s *Insight) Doing(j job.Job) Doing {
	if j.Run.Instance == "" || j.State != job.Running {
		return Doing{}
	}
	a := s.Dispatch.Instances.Activity(j.Run.Instance)
	if a.Job.Key != j.Key {
		return Doing{}
	}
	d := Doing{Node: a.Node, Class: a.Class}
	if p, ok := s.Dispatch.Instances.Preview(j.Run.Instance, j.Key); ok {
		d.Picture, d.Kind = p.Image, mediaTypeOf(p)
	}
	return d
}

// mediaTypeOf returns the media type of a preview, "" for one that no browser shows.
func mediaTypeOf(p comfyui.Binary) string {
	switch p.Format {
	case comfyui.FormatJPEG:
		return "image/jpeg"
	case comfyui.FormatPNG:
		return "image/png"
	}
	return ""
}
