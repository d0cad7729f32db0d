data "aws_ssm_parameter" "debian" {
  name = "/aws/service/debian/release/13/latest/arm64"
}

data "aws_subnet" "hub" {
  id = var.subnet_id
}

locals {
  # What hub.sh reads: shell variables, in quotes.
  hub = {
    HOST    = var.host
    RELEASE = var.release
    SECRETS = var.secrets
    VOLUME  = replace(aws_ebs_volume.hub.id, "-", "")
    STORAGE = "s3://${aws_s3_bucket.this.id}?region=${data.aws_region.this.region}"
    REDIS   = one([for group in aws_elasticache_replication_group.this : "rediss://${group.primary_endpoint_address}:6379"])
    # One login a line, as basic_auth has them.
    LOGINS    = join("\n", [for name, hash in var.logins : "${name} ${hash}"])
    OPERATORS = join(" ", var.operators)
    SCALE     = var.gpu == null ? "" : "scale gpu {\n\tmax ${var.gpu.max}\n\tprovider ec2 comfyhub-gpu ${data.aws_region.this.region}\n}"
  }
}

# The address that agents know outlives the machine.
resource "aws_network_interface" "hub" {
  subnet_id       = var.subnet_id
  security_groups = [aws_security_group.hub.id]
}

resource "aws_instance" "hub" {
  ami                         = data.aws_ssm_parameter.debian.insecure_value
  instance_type               = var.instance_type
  iam_instance_profile        = aws_iam_instance_profile.hub.name
  user_data_replace_on_change = true
  user_data = join("\n", concat(["#!/bin/sh"],
    [for name, value in local.hub : "${name}='${value == null ? "" : value}'"],
  [file("${path.module}/hub.sh")]))

  primary_network_interface {
    network_interface_id = aws_network_interface.hub.id
  }

  metadata_options {
    http_tokens = "required"
  }

  root_block_device {
    volume_type = "gp3"
    encrypted   = true
  }

  lifecycle {
    ignore_changes = [ami] # Debian's updates come by apt
  }
}

# The queue and the hub's keys outlive the machine.
resource "aws_ebs_volume" "hub" {
  availability_zone = data.aws_subnet.hub.availability_zone
  size              = var.volume_size
  type              = "gp3"
  encrypted         = true
  tags              = { Name = "comfyhub" }

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_volume_attachment" "hub" {
  device_name                    = "/dev/sdf"
  volume_id                      = aws_ebs_volume.hub.id
  instance_id                    = aws_instance.hub.id
  stop_instance_before_detaching = true
}

resource "aws_eip" "hub" {
  domain = "vpc"
}

resource "aws_eip_association" "hub" {
  allocation_id        = aws_eip.hub.id
  network_interface_id = aws_network_interface.hub.id
}

resource "aws_route53_record" "hub" {
  count   = var.zone_id == "" ? 0 : 1
  zone_id = var.zone_id
  name    = var.host
  type    = "A"
  ttl     = 60
  records = [aws_eip.hub.public_ip]
}
