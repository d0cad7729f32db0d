# The hub says how many there are (docs/scale-providers.md#ec2), so the group has no scaling policy.

data "aws_ami" "gpu" {
  count = var.gpu == null ? 0 : 1

  filter {
    name   = "image-id"
    values = [var.gpu.image]
  }
}

resource "aws_launch_template" "gpu" {
  count                  = var.gpu == null ? 0 : 1
  name                   = "comfyhub-gpu"
  image_id               = var.gpu.image
  instance_type          = var.gpu.instance_type
  vpc_security_group_ids = [aws_security_group.gpu.id]
  user_data = base64encode(join("\n", [
    "#!/bin/sh",
    "HUB='${aws_network_interface.hub.private_ip}'",
    "RELEASE='${var.release}'",
    "SECRETS='${var.secrets}'",
    "PREFIX='gpu'",
    file("${path.module}/gpu.sh"),
  ]))

  iam_instance_profile {
    arn = aws_iam_instance_profile.gpu.arn
  }

  metadata_options {
    http_tokens = "required"
  }

  block_device_mappings {
    device_name = data.aws_ami.gpu[0].root_device_name

    ebs {
      volume_type = "gp3"
      volume_size = var.gpu.volume_size
      encrypted   = "true"
    }
  }
}

resource "aws_autoscaling_group" "gpu" {
  count                 = var.gpu == null ? 0 : 1
  name                  = "comfyhub-gpu"
  vpc_zone_identifier   = var.private_subnet_ids
  min_size              = 0
  max_size              = var.gpu.max
  protect_from_scale_in = true

  launch_template {
    id      = aws_launch_template.gpu[0].id
    version = aws_launch_template.gpu[0].latest_version
  }

  tag {
    key                 = "Name"
    value               = "comfyhub-gpu"
    propagate_at_launch = true
  }

  lifecycle {
    ignore_changes = [desired_capacity] # the hub's
  }
}
