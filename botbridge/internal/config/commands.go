package config

import (
	"errors"
	"fmt"
	"os"

	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// Bind reads the workflows of all commands. The error names the commands whose
// workflow cannot be used; the others are returned all the same.
func (c *Config) Bind() ([]*workflow.Command, error) {
	var commands []*workflow.Command
	var problems []error
	for _, command := range c.Commands {
		bound, err := c.bind(command)
		if err != nil {
			problems = append(problems, fmt.Errorf("command %s: %w", command.Name, err))
			continue
		}
		if bound.Name == c.DefaultEditCommand && !bound.Edits() {
			problems = append(problems, fmt.Errorf("default_edit_command: %s does not make something from a picture and words", bound.Name))
		}
		commands = append(commands, bound)
	}
	commands, err := c.style(commands)
	return commands, errors.Join(append(problems, err)...)
}

func (c *Config) bind(command Command) (*workflow.Command, error) {
	if command.Workflow == "" {
		return nil, errors.New("workflow: no file is named")
	}
	file, err := os.ReadFile(within(c.Folder, command.Workflow))
	if err != nil {
		return nil, err
	}
	return workflow.NewCommand(command.Name, command.Spec, file)
}

// LocaleFolder returns the folder of additional languages, "" for none.
func (c *Config) LocaleFolder() string {
	if c.Locales == "" {
		return ""
	}
	return within(c.Folder, c.Locales)
}
